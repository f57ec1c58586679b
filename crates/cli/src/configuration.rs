//! Options that a file, the environment and flags can give, in this order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use crate::Failure;

/// An option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// As the flag has it. The file has underscores instead of hyphens.
    flag: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
}

impl Key {
    pub(crate) const fn new(flag: &'static str, value: &'static str, default: &'static str) -> Key {
        Key { flag, value, default, help: "" }
    }

    pub(crate) const fn help(self, help: &'static str) -> Key {
        Key { help, ..self }
    }

    /// Its name in the file, and in the program.
    fn name(&self) -> String {
        self.flag.replace('-', "_")
    }

    fn variable(&self) -> String {
        format!("SERIATIM_{}", self.name().to_ascii_uppercase())
    }
}

/// The values of all options.
pub(crate) struct Configuration(BTreeMap<String, String>);

impl Configuration {
    /// Adds the flags of these options, and that of the file.
    pub(crate) fn arguments(command: Command, keys: &[Key]) -> Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help("The configuration file, TOML; or SERIATIM_CONFIG");
        keys.iter().fold(command.arg(file), |command, key| {
            let default = if key.default.is_empty() { String::new() } else { format!(" [default: {}]", key.default) };
            let arg = Arg::new(key.flag).long(key.flag).value_name(key.value);
            command.arg(arg.help(format!("{}{default}", key.help)))
        })
    }

    /// Reads all values.
    ///
    /// # Errors
    /// The file cannot be read, or has an unknown option.
    pub(crate) fn read(matches: &ArgMatches, keys: &[Key]) -> Result<Configuration, Failure> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let file = matches.get_one::<String>("config").cloned().or_else(|| variable("SERIATIM_CONFIG"));
        let of_file = match file {
            Some(path) => {
                let text =
                    std::fs::read_to_string(&path).map_err(|error| Failure::Usage(format!("{path}: {error}")))?;
                parse(&text, keys).map_err(|problem| Failure::Usage(format!("{path}: {problem}")))?
            }
            None => BTreeMap::new(),
        };
        let value = |key: &Key| {
            let flag = matches.get_one::<String>(key.flag).cloned();
            let given = flag.or_else(|| variable(&key.variable())).or_else(|| of_file.get(&key.name()).cloned());
            (key.name(), given.unwrap_or_else(|| key.default.to_owned()))
        };
        Ok(Configuration(keys.iter().map(value).collect()))
    }

    /// The text of an option.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The file that an option names, if it does.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.text(name)).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    fn wrong(&self, name: &str, wanted: &str) -> Failure {
        Failure::Usage(format!("{name} is \"{}\"; it must be {wanted}", self.text(name)))
    }

    /// A number from 1.
    pub(crate) fn number(&self, name: &str) -> Result<usize, Failure> {
        let number = self.text(name).parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| self.wrong(name, "a number from 1"))
    }

    /// Yes or no.
    pub(crate) fn is_on(&self, name: &str) -> Result<bool, Failure> {
        match self.text(name) {
            "on" | "true" | "yes" | "1" => Ok(true),
            "off" | "false" | "no" | "0" => Ok(false),
            _ => Err(self.wrong(name, "on or off")),
        }
    }

    /// A time.
    pub(crate) fn time(&self, name: &str) -> Result<Duration, Failure> {
        let text = self.text(name);
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "" | "ms" => Some(1),
            "s" => Some(1000),
            "min" => Some(60_000),
            "h" => Some(3_600_000),
            _ => None,
        };
        let time = digits.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
        let time = time.filter(|time| (1..=86_400_000).contains(time)).map(Duration::from_millis);
        time.ok_or_else(|| self.wrong(name, "a time up to a day, as 500ms or 10s"))
    }
}

/// The options of a file.
fn parse(text: &str, keys: &[Key]) -> Result<BTreeMap<String, String>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let mut options = BTreeMap::new();
    for (name, value) in table {
        if !keys.iter().any(|key| key.name() == name) {
            return Err(unknown(&name, keys));
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(is_on) => if is_on { "on" } else { "off" }.to_owned(),
            other => return Err(format!("{name} is {}; it is a text, a number, true or false", other.type_str())),
        };
        options.insert(name, value);
    }
    Ok(options)
}

/// The error of an option that there is not, with the most similar one.
fn unknown(name: &str, keys: &[Key]) -> String {
    let nearest = keys.iter().map(Key::name).min_by_key(|known| distance(name, known)).unwrap_or_default();
    format!("there is no option {name}; the most similar one is {nearest}. `seriatim serve --help` has all")
}

/// How many characters must be inserted, deleted or replaced to make one of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = (0..=b.len()).collect();
    for (at, own) in a.chars().enumerate() {
        let mut now = vec![at + 1];
        for (other, is) in b.iter().enumerate() {
            let replaced = before[other] + usize::from(own != *is);
            now.push(replaced.min(before[other + 1] + 1).min(now[other] + 1));
        }
        before = now;
    }
    before[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[Key] = &[Key::new("listen", "HOST:PORT", "here"), Key::new("max-connections", "N", "100")];

    #[test]
    fn files_have_options_and_name_the_nearest_of_unknown_ones() {
        let options = parse("listen = \"there\"\nmax_connections = 7", KEYS).expect("both are known");
        assert_eq!((&*options["listen"], &*options["max_connections"]), ("there", "7"));
        let error = parse("max_conections = 7", KEYS).expect_err("it is misspelt");
        assert!(error.contains("no option max_conections") && error.contains("is max_connections."), "{error}");
        assert!(parse("listen = [1]", KEYS).expect_err("no list").contains("listen is array"));
        assert!(parse("listen", KEYS).is_err());
        assert_eq!((distance("", "ab"), distance("abc", "abd"), distance("abc", "ac")), (2, 1, 1));
    }

    #[test]
    fn flags_count_before_the_file() {
        let path = std::env::temp_dir().join(format!("seriatim-configuration-{}.toml", std::process::id()));
        std::fs::write(&path, "listen = \"there\"\nmax_connections = 7").expect("there is space");
        let command = || Configuration::arguments(Command::new("serve"), KEYS);
        let file = format!("--config={}", path.display());
        let of = |arguments: &[&str]| {
            let arguments = ["serve"].iter().chain(arguments);
            Configuration::read(&command().get_matches_from(arguments), KEYS).unwrap_or_else(|_| panic!("it is sound"))
        };
        let given = of(&[&file, "--max-connections=9"]);
        assert_eq!((given.text("listen"), given.number("max_connections").ok()), ("there", Some(9)));
        let usual = of(&[]);
        assert_eq!((usual.text("listen"), usual.number("max_connections").ok()), ("here", Some(100)));
        assert!(usual.number("listen").is_err() && usual.is_on("listen").is_err() && usual.time("listen").is_err());
        std::fs::remove_file(path).expect("it exists");
    }
}

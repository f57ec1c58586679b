//! The effects of the methods and associated functions that procedures may call, on data.
//!
//! The lists themselves, [`METHODS`] and [`ASSOCIATED`], are in `names.rs`. A call has its receiver as first
//! argument.
//!
//! - A method in [`Position::Statement`] changes its receiver. The step `xs.push(x);` assigns the value of the
//!   call `push(xs, x)`, which is the changed list, to `xs`.
//! - A method in [`Position::Header`] occurs in the header of a `for` only.
//! - `into` returns an integer without its type, so that the value with which it is combined decides the type.
//!   Other values stay as they are.
//! - A type in an associated function is as written, with or without its path. A name for a type (`type Money
//!   = Decimal<2>`) means nothing here. The front end turns such a call into a
//!   [`Function::Pure`](crate::ir::Function::Pure) that goes through [`apply`], which the compiler resolves.

use std::cmp::Ordering;

use seriatim_catalog::TableDef;

use crate::arithmetic::{integer, unary};
use crate::compare::{equal, total_order};
use crate::ir::UnaryOperator;
pub use crate::names::{ASSOCIATED, Associated, INTEGERS, METHODS, Method, Position, method};
use crate::{Data, Datum, EvaluationError, IntegerType};

type Evaluate = fn(&[Datum]) -> Result<Datum, EvaluationError>;

/// The evaluation of a method of [`METHODS`].
fn evaluation(name: &str) -> Option<Evaluate> {
    Some(match name {
        "abs" => abs,
        "as_str" | "clone" | "to_owned" => same,
        "contains" => contains,
        "dedup" => dedup,
        "enumerate" => enumerate,
        "into" => into,
        "is_empty" => |args| Ok(Datum::Bool(len(args)? == usize_datum(0))),
        "is_none" => |args| Ok(Datum::Bool(option(args)?.is_none())),
        "is_some" => |args| Ok(Datum::Bool(option(args)?.is_some())),
        "iter" => |args| Ok(Datum::List(list(&args[0])?.to_vec())),
        "len" => len,
        "max" => |args| least(args, Ordering::is_gt),
        "min" => |args| least(args, Ordering::is_le),
        "push" => push,
        "sort" => sort,
        "starts_with" => starts_with,
        "units" => units,
        "unwrap_or" => |args| Ok(option(args)?.unwrap_or(&args[1]).clone()),
        "zip" => zip,
        _ => return None,
    })
}

fn check_arity(what: &str, arity: usize, arguments: &[Datum]) -> Result<(), EvaluationError> {
    if arguments.len() == arity {
        return Ok(());
    }
    Err(EvaluationError::Type(format!("`{what}` takes {arity} arguments, found {}", arguments.len())))
}

/// The value of a method; of one that changes its receiver: the changed receiver.
///
/// # Errors
/// [`EvaluationError::Type`] if there is no such method or it is not one of these arguments; overflow of `abs`.
pub fn call(name: &str, arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    let found = method(name).zip(evaluation(name));
    let (method, evaluate) =
        found.ok_or_else(|| EvaluationError::Type(format!("procedures have no method `{name}`")))?;
    check_arity(name, method.arity, arguments)?;
    evaluate(arguments)
}

/// The value of an associated function of a type as written.
///
/// # Errors
/// [`EvaluationError::Type`] if there is no such function or it is not one of these arguments; overflow.
pub fn call_associated(ty: &str, name: &str, arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    let (base, parameter) = split_type(ty);
    let unknown = || EvaluationError::Type(format!("procedures have no function `{ty}::{name}`"));
    let integer_type = IntegerType::by_name(&base);
    let arity = if name == "new" { 0 } else { 1 };
    let checked = || check_arity(&format!("{ty}::{name}"), arity, arguments);
    match (&*base, name, integer_type) {
        (_, "from", Some(ty)) => {
            checked()?;
            widened(&arguments[0], ty)
        }
        (_, "from_units", None) => {
            checked()?;
            let scale =
                parameter.and_then(|scale| u8::try_from(scale).ok()).filter(|scale| *scale <= TableDef::SCALE_MAX);
            let scale = scale.filter(|_| base == "Decimal").ok_or_else(|| {
                EvaluationError::Type(format!("the scale of `{ty}` is not known here; write Decimal::<S>::from_units"))
            })?;
            Ok(Datum::Decimal { units: i64::from_datum(&arguments[0])?, scale })
        }
        ("Timestamp", "from_microseconds", None) => {
            checked()?;
            i64::from_datum(&arguments[0]).map(Datum::Timestamp)
        }
        ("Text", "truncated", None) => {
            checked()?;
            let text = String::from_datum(&arguments[0])?;
            let end = parameter.map_or(text.len(), |room| text.floor_char_boundary(room));
            Ok(Datum::Text(text[..end].to_owned()))
        }
        ("String", "new", None) => checked().map(|()| Datum::Text(String::new())),
        ("Vec", "new", None) => checked().map(|()| Datum::List(Vec::new())),
        _ => Err(unknown()),
    }
}

/// `function` of one argument, for front ends that leave it to the compiler to resolve a type:
///
/// ```
/// # use seriatim_procedure::{Data, Datum, EvaluationError, methods::apply};
/// type Money = seriatim_catalog::Decimal<2>;
/// let evaluate: fn(&[Datum]) -> Result<Datum, EvaluationError> = |arguments| apply(arguments, Money::from_units);
/// assert_eq!(evaluate(&[Datum::Integer(5, None)]), Ok(Money::from_units(5).to_datum()));
/// ```
///
/// # Errors
/// [`EvaluationError`] if there is not one argument of the right type.
pub fn apply<A: Data, R: Data>(arguments: &[Datum], function: impl FnOnce(A) -> R) -> Result<Datum, EvaluationError> {
    match arguments {
        [argument] => Ok(function(A::from_datum(argument)?).to_datum()),
        _ => Err(EvaluationError::Type(format!("a function takes 1 argument, found {}", arguments.len()))),
    }
}

/// The last segment of a type's path and its number in angle brackets: `catalog::Text::<16>` is `Text` and 16.
fn split_type(ty: &str) -> (String, Option<usize>) {
    let ty: String = ty.chars().filter(|c| !c.is_whitespace()).collect();
    let (path, parameter) = match ty.split_once('<') {
        Some((path, rest)) => (path.trim_end_matches("::"), rest.strip_suffix('>').and_then(|n| n.parse().ok())),
        None => (&*ty, None),
    };
    (path.rsplit("::").next().unwrap_or(path).to_owned(), parameter)
}

/// `ty::from(value)`, for every type that the standard library has it for.
fn widened(value: &Datum, ty: IntegerType) -> Result<Datum, EvaluationError> {
    let refused = || EvaluationError::Type(format!("{ty}::from does not take {}", value.kind()));
    match *value {
        Datum::Bool(value) => Ok(Datum::Integer(value.into(), Some(ty))),
        Datum::Integer(number, None) => integer(Some(number), Some(ty)),
        Datum::Integer(number, Some(from)) => {
            let within = ty.has(from.range().0) && ty.has(from.range().1);
            // The standard library promises usize 16 bits, and says nothing of its greatest width.
            let portable = from == ty
                || match (from, ty) {
                    (IntegerType::Usize, _) => false,
                    (_, IntegerType::Usize) => matches!(from, IntegerType::U8 | IntegerType::U16),
                    _ => true,
                };
            if within && portable { integer(Some(number), Some(ty)) } else { Err(refused()) }
        }
        _ => Err(refused()),
    }
}

fn usize_datum(number: usize) -> Datum {
    number.to_datum()
}

fn list(datum: &Datum) -> Result<&[Datum], EvaluationError> {
    match datum {
        Datum::List(elements) => Ok(elements),
        _ => Err(EvaluationError::expected("a list", datum)),
    }
}

fn option(arguments: &[Datum]) -> Result<Option<&Datum>, EvaluationError> {
    match &arguments[0] {
        Datum::Option(value) => Ok(value.as_deref()),
        other => Err(EvaluationError::expected("an Option", other)),
    }
}

fn len(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    match &arguments[0] {
        Datum::List(elements) => Ok(usize_datum(elements.len())),
        Datum::Text(text) => Ok(usize_datum(text.len())),
        Datum::Bytes(bytes) => Ok(usize_datum(bytes.len())),
        other => Err(EvaluationError::expected("a list, text or bytes", other)),
    }
}

/// The first argument if its order to the second is as wanted, else the second.
fn least(arguments: &[Datum], wanted: fn(Ordering) -> bool) -> Result<Datum, EvaluationError> {
    let (a, b) = (&arguments[0], &arguments[1]);
    if let (Datum::Float(x), Datum::Float(y)) = (a, b) {
        return Ok(Datum::Float(if wanted(Ordering::Less) { x.min(*y) } else { x.max(*y) }));
    }
    let chosen = if wanted(total_order(a, b)?) { a } else { b };
    Ok(match (chosen, a, b) {
        // A literal that is chosen takes the other's type, too.
        (&Datum::Integer(number, None), &Datum::Integer(_, x), &Datum::Integer(_, y)) => {
            Datum::Integer(number, x.or(y))
        }
        _ => chosen.clone(),
    })
}

fn abs(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    match &arguments[0] {
        Datum::Float(number) => Ok(Datum::Float(number.abs())),
        Datum::Integer(_, Some(ty)) if ty.range().0 == 0 => Err(EvaluationError::Type(format!("{ty} has no `abs`"))),
        Datum::Integer(number, _) if *number < 0 => unary(UnaryOperator::Negate, &arguments[0]),
        Datum::Integer(..) => Ok(arguments[0].clone()),
        other => Err(EvaluationError::expected("an integer or float", other)),
    }
}

fn contains(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    if let (Datum::Text(text), Datum::Text(part)) = (&arguments[0], &arguments[1]) {
        return Ok(Datum::Bool(text.contains(&**part)));
    }
    for element in list(&arguments[0])? {
        if equal(element, &arguments[1])? {
            return Ok(Datum::Bool(true));
        }
    }
    Ok(Datum::Bool(false))
}

fn starts_with(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    match (&arguments[0], &arguments[1]) {
        (Datum::Text(text), Datum::Text(start)) => Ok(Datum::Bool(text.starts_with(&**start))),
        (Datum::Bytes(bytes), Datum::Bytes(start)) => Ok(Datum::Bool(bytes.starts_with(start))),
        (whole, start) => {
            let (whole, start) = (list(whole)?, list(start)?);
            match whole.get(..start.len()) {
                Some(head) => equal(&Datum::List(head.to_vec()), &arguments[1]).map(Datum::Bool),
                None => Ok(Datum::Bool(false)),
            }
        }
    }
}

fn units(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    match &arguments[0] {
        Datum::Decimal { units, .. } => Ok(units.to_datum()),
        other => Err(EvaluationError::expected("a Decimal", other)),
    }
}

fn same(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    Ok(arguments[0].clone())
}

fn into(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    Ok(match &arguments[0] {
        Datum::Integer(number, _) => Datum::Integer(*number, None),
        other => other.clone(),
    })
}

fn push(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    let mut elements = list(&arguments[0])?.to_vec();
    elements.push(arguments[1].clone());
    Ok(Datum::List(elements))
}

/// By insertion: the sorts of the standard library may panic where elements of several types have no order.
fn sort(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    let mut sorted: Vec<Datum> = Vec::new();
    for element in list(&arguments[0])? {
        let mut problem = None;
        let at = sorted.partition_point(|earlier| match total_order(earlier, element) {
            Ok(ordering) => ordering.is_le(),
            Err(error) => {
                problem = Some(error);
                false
            }
        });
        if let Some(problem) = problem {
            return Err(problem);
        }
        sorted.insert(at, element.clone());
    }
    Ok(Datum::List(sorted))
}

fn dedup(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    let mut kept: Vec<Datum> = Vec::new();
    for element in list(&arguments[0])? {
        let repeated = kept.last().map_or(Ok(false), |last| equal(last, element))?;
        if !repeated {
            kept.push(element.clone());
        }
    }
    Ok(Datum::List(kept))
}

fn enumerate(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    let pair = |(at, element): (usize, &Datum)| Datum::Tuple(vec![usize_datum(at), element.clone()]);
    Ok(Datum::List(list(&arguments[0])?.iter().enumerate().map(pair).collect()))
}

fn zip(arguments: &[Datum]) -> Result<Datum, EvaluationError> {
    let pairs = list(&arguments[0])?.iter().zip(list(&arguments[1])?);
    Ok(Datum::List(pairs.map(|(a, b)| Datum::Tuple(vec![a.clone(), b.clone()])).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<T: Data>(name: &str, arguments: &[Datum]) -> T {
        T::from_datum(&call(name, arguments).unwrap()).unwrap()
    }

    fn fails(result: Result<Datum, EvaluationError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn names_are_listed_once_and_each_does_something() {
        assert!(METHODS.is_sorted_by(|left, right| left.name < right.name), "in alphabetical order");
        for method in METHODS {
            assert!(evaluation(method.name).is_some(), "{}", method.name);
        }
        for name in INTEGERS {
            assert!(IntegerType::by_name(name).is_some(), "{name}");
        }
    }

    #[test]
    fn methods_do_to_data_what_they_do_to_values() {
        let numbers = vec![3u8, 1, 3, 3, 2];
        let list = numbers.to_datum();
        assert_eq!(value::<usize>("len", std::slice::from_ref(&list)), 5);
        assert_eq!(value::<usize>("len", &[Datum::Text("é".into())]), 2);
        assert!(value::<bool>("is_empty", &[Datum::Bytes(vec![])]));
        assert!(value::<bool>("is_some", &[Some(1u8).to_datum()]));
        assert!(!value::<bool>("is_none", &[Some(1u8).to_datum()]));
        assert_eq!(value::<u8>("unwrap_or", &[Datum::NONE, 4u8.to_datum()]), 4);
        assert_eq!(value::<u8>("unwrap_or", &[Some(1u8).to_datum(), 4u8.to_datum()]), 1);
        assert_eq!(value::<i8>("min", &[(-4i8).to_datum(), 3i8.to_datum()]), -4);
        assert_eq!(value::<i8>("max", &[(-4i8).to_datum(), 3i8.to_datum()]), 3);
        assert_eq!(value::<f64>("max", &[f64::NAN.to_datum(), 3.0.to_datum()]), 3.0);
        assert_eq!(value::<i8>("abs", &[(-4i8).to_datum()]), 4);
        assert_eq!(call("abs", &[i8::MIN.to_datum()]), Err(EvaluationError::Overflow));
        assert!(value::<bool>("contains", &[list.clone(), 2u8.to_datum()]));
        assert!(!value::<bool>("contains", &[list.clone(), 9u8.to_datum()]));
        assert!(value::<bool>("contains", &[Datum::Text("original".into()), Datum::Text("gin".into())]));
        assert!(value::<bool>("starts_with", &[Datum::Text("PRIME".into()), Datum::Text("PRI".into())]));
        assert!(value::<bool>("starts_with", &[list.clone(), vec![3u8, 1].to_datum()]));
        assert!(!value::<bool>("starts_with", &[vec![3u8].to_datum(), list.clone()]));
        assert_eq!(value::<i64>("units", &[Datum::Decimal { units: 150, scale: 2 }]), 150);
        assert_eq!(value::<Vec<u8>>("push", &[list.clone(), 7u8.to_datum()]), [3, 1, 3, 3, 2, 7]);
        assert_eq!(value::<Vec<u8>>("sort", std::slice::from_ref(&list)), [1, 2, 3, 3, 3]);
        assert_eq!(value::<Vec<u8>>("dedup", std::slice::from_ref(&list)), [3, 1, 3, 2]);
        assert_eq!(value::<Vec<u8>>("iter", std::slice::from_ref(&list)), numbers);
        assert_eq!(value::<Vec<(usize, bool)>>("enumerate", &[vec![true, false].to_datum()]), [(0, true), (1, false)]);
        assert_eq!(value::<Vec<(u8, bool)>>("zip", &[list.clone(), vec![true].to_datum()]), [(3, true)]);
        assert_eq!(call("clone", std::slice::from_ref(&list)), Ok(list));
        assert_eq!(value::<u64>("into", &[7u8.to_datum()]), 7);
    }

    #[test]
    fn a_chosen_literal_has_the_type_of_the_other() {
        assert_eq!(call("max", &[Datum::Integer(5, None), 3u8.to_datum()]), Ok(5u8.to_datum()));
        assert_eq!(call("min", &[3u8.to_datum(), Datum::Integer(300, None)]), Err(EvaluationError::Overflow));
    }

    #[test]
    fn associated_functions_make_the_types_they_are_written_with() {
        let of = |ty, name, datum: Datum| call_associated(ty, name, &[datum]);
        assert_eq!(of("u32", "from", 7u8.to_datum()), Ok(7u32.to_datum()));
        assert_eq!(of("i64", "from", true.to_datum()), Ok(1i64.to_datum()));
        assert_eq!(of("u8", "from", Datum::Integer(256, None)), Err(EvaluationError::Overflow));
        assert_eq!(fails(of("u8", "from", 7u16.to_datum())), "u8::from does not take a u16");
        assert_eq!(fails(of("u64", "from", 7usize.to_datum())), "u64::from does not take a usize");
        assert_eq!(fails(of("usize", "from", 7u32.to_datum())), "usize::from does not take a u32");
        assert_eq!(of("Decimal :: < 2 >", "from_units", 7i64.to_datum()), Ok(Datum::Decimal { units: 7, scale: 2 }));
        assert!(fails(of("Money", "from_units", 7i64.to_datum())).contains("the scale of `Money` is not known"));
        assert!(fails(of("Decimal::<19>", "from_units", 7i64.to_datum())).contains("not known"));
        assert_eq!(of("seriatim::Text::<2>", "truncated", Datum::Text("aé".into())), Ok(Datum::Text("a".into())));
        assert_eq!(of("Text", "truncated", Datum::Text("aé".into())), Ok(Datum::Text("aé".into())));
        assert_eq!(of("Timestamp", "from_microseconds", 7i64.to_datum()), Ok(Datum::Timestamp(7)));
        assert_eq!(call_associated("Vec", "new", &[]), Ok(Datum::List(vec![])));
        assert_eq!(call_associated("String", "new", &[]), Ok(Datum::Text(String::new())));
        assert_eq!(fails(call_associated("String", "default", &[])), "procedures have no function `String::default`");
    }

    #[test]
    fn every_listed_function_is_there_and_takes_what_it_says() {
        for function in ASSOCIATED {
            let ty = match function.ty {
                "{integer}" => "u8",
                "{decimal}" => "Decimal::<2>",
                ty => ty,
            };
            let argument = if function.name == "truncated" { Datum::Text("a".into()) } else { Datum::Integer(1, None) };
            let arguments = vec![argument; function.arity + 1];
            assert!(call_associated(ty, function.name, &arguments[1..]).is_ok(), "{ty}::{}", function.name);
            assert!(fails(call_associated(ty, function.name, &arguments)).contains("arguments, found"));
        }
    }

    #[test]
    fn what_is_not_listed_or_does_not_fit_is_refused() {
        assert_eq!(fails(call("unwrap", &[Datum::NONE])), "procedures have no method `unwrap`");
        assert_eq!(fails(call("len", &[])), "`len` takes 1 arguments, found 0");
        assert_eq!(fails(call("units", &[7u8.to_datum()])), "expected a Decimal, found a u8");
        assert!(call("sort", &[vec![1.0, 2.0].to_datum()]).is_err());
        assert!(call("sort", &[Datum::List(vec![1u8.to_datum(), 1u16.to_datum()])]).is_err());
        for method in METHODS {
            for datum in [Datum::UNIT, Datum::Float(f64::NAN), Datum::Integer(i128::MIN, None)] {
                let _ = call(method.name, &vec![datum; method.arity]);
            }
        }
    }
}

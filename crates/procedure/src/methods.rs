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
use crate::{Data, EvaluationError, IntegerType, Value};

type Evaluate = fn(&[Value]) -> Result<Value, EvaluationError>;

/// The evaluation of a method of [`METHODS`].
fn evaluation(name: &str) -> Option<Evaluate> {
    Some(match name {
        "abs" => abs,
        "as_str" | "clone" | "to_owned" => same,
        "contains" => contains,
        "dedup" => dedup,
        "enumerate" => enumerate,
        "into" => into,
        "is_empty" => |args| Ok(Value::Bool(len(args)? == usize_value(0))),
        "is_none" => |args| Ok(Value::Bool(option(args)?.is_none())),
        "is_some" => |args| Ok(Value::Bool(option(args)?.is_some())),
        "iter" => |args| Ok(Value::List(list(&args[0])?.to_vec())),
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

fn check_arity(what: &str, arity: usize, arguments: &[Value]) -> Result<(), EvaluationError> {
    if arguments.len() == arity {
        return Ok(());
    }
    Err(EvaluationError::Type(format!("`{what}` takes {arity} arguments, found {}", arguments.len())))
}

/// The value of a method; of one that changes its receiver: the changed receiver.
///
/// # Errors
/// [`EvaluationError::Type`] if there is no such method or it is not one of these arguments; overflow of `abs`.
pub fn call(name: &str, arguments: &[Value]) -> Result<Value, EvaluationError> {
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
pub fn call_associated(ty: &str, name: &str, arguments: &[Value]) -> Result<Value, EvaluationError> {
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
            Ok(Value::Decimal { units: i64::from_value(&arguments[0])?, scale })
        }
        ("Timestamp", "from_microseconds", None) => {
            checked()?;
            i64::from_value(&arguments[0]).map(Value::Timestamp)
        }
        ("Text", "truncated", None) => {
            checked()?;
            let text = String::from_value(&arguments[0])?;
            let end = parameter.map_or(text.len(), |room| text.floor_char_boundary(room));
            Ok(Value::Text(text[..end].to_owned()))
        }
        ("String", "new", None) => checked().map(|()| Value::Text(String::new())),
        ("Vec", "new", None) => checked().map(|()| Value::List(Vec::new())),
        _ => Err(unknown()),
    }
}

/// `function` of one argument, for front ends that leave it to the compiler to resolve a type:
///
/// ```
/// # use seriatim_procedure::{Data, Value, EvaluationError, methods::apply};
/// type Money = seriatim_catalog::Decimal<2>;
/// let evaluate: fn(&[Value]) -> Result<Value, EvaluationError> = |arguments| apply(arguments, Money::from_units);
/// assert_eq!(evaluate(&[Value::Integer(5, None)]), Ok(Money::from_units(5).to_value()));
/// ```
///
/// # Errors
/// [`EvaluationError`] if there is not one argument of the right type.
pub fn apply<A: Data, R: Data>(arguments: &[Value], function: impl FnOnce(A) -> R) -> Result<Value, EvaluationError> {
    match arguments {
        [argument] => Ok(function(A::from_value(argument)?).to_value()),
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
fn widened(value: &Value, ty: IntegerType) -> Result<Value, EvaluationError> {
    let refused = || EvaluationError::Type(format!("{ty}::from does not take {}", value.kind()));
    match *value {
        Value::Bool(value) => Ok(Value::Integer(value.into(), Some(ty))),
        Value::Integer(number, None) => integer(Some(number), Some(ty)),
        Value::Integer(number, Some(from)) => {
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

fn usize_value(number: usize) -> Value {
    number.to_value()
}

fn list(value: &Value) -> Result<&[Value], EvaluationError> {
    match value {
        Value::List(elements) => Ok(elements),
        _ => Err(EvaluationError::expected("a list", value)),
    }
}

fn option(arguments: &[Value]) -> Result<Option<&Value>, EvaluationError> {
    match &arguments[0] {
        Value::Option(value) => Ok(value.as_deref()),
        other => Err(EvaluationError::expected("an Option", other)),
    }
}

fn len(arguments: &[Value]) -> Result<Value, EvaluationError> {
    match &arguments[0] {
        Value::List(elements) => Ok(usize_value(elements.len())),
        Value::Text(text) => Ok(usize_value(text.len())),
        Value::Bytes(bytes) => Ok(usize_value(bytes.len())),
        other => Err(EvaluationError::expected("a list, text or bytes", other)),
    }
}

/// The first argument if its order to the second is as wanted, else the second.
fn least(arguments: &[Value], wanted: fn(Ordering) -> bool) -> Result<Value, EvaluationError> {
    let (a, b) = (&arguments[0], &arguments[1]);
    if let (Value::Float(x), Value::Float(y)) = (a, b) {
        return Ok(Value::Float(if wanted(Ordering::Less) { x.min(*y) } else { x.max(*y) }));
    }
    let chosen = if wanted(total_order(a, b)?) { a } else { b };
    Ok(match (chosen, a, b) {
        // A literal that is chosen takes the other's type, too.
        (&Value::Integer(number, None), &Value::Integer(_, x), &Value::Integer(_, y)) => {
            Value::Integer(number, x.or(y))
        }
        _ => chosen.clone(),
    })
}

fn abs(arguments: &[Value]) -> Result<Value, EvaluationError> {
    match &arguments[0] {
        Value::Float(number) => Ok(Value::Float(number.abs())),
        Value::Integer(_, Some(ty)) if ty.range().0 == 0 => Err(EvaluationError::Type(format!("{ty} has no `abs`"))),
        Value::Integer(number, _) if *number < 0 => unary(UnaryOperator::Negate, &arguments[0]),
        Value::Integer(..) => Ok(arguments[0].clone()),
        other => Err(EvaluationError::expected("an integer or float", other)),
    }
}

fn contains(arguments: &[Value]) -> Result<Value, EvaluationError> {
    if let (Value::Text(text), Value::Text(part)) = (&arguments[0], &arguments[1]) {
        return Ok(Value::Bool(text.contains(&**part)));
    }
    for element in list(&arguments[0])? {
        if equal(element, &arguments[1])? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn starts_with(arguments: &[Value]) -> Result<Value, EvaluationError> {
    match (&arguments[0], &arguments[1]) {
        (Value::Text(text), Value::Text(start)) => Ok(Value::Bool(text.starts_with(&**start))),
        (Value::Bytes(bytes), Value::Bytes(start)) => Ok(Value::Bool(bytes.starts_with(start))),
        (whole, start) => {
            let (whole, start) = (list(whole)?, list(start)?);
            match whole.get(..start.len()) {
                Some(head) => equal(&Value::List(head.to_vec()), &arguments[1]).map(Value::Bool),
                None => Ok(Value::Bool(false)),
            }
        }
    }
}

fn units(arguments: &[Value]) -> Result<Value, EvaluationError> {
    match &arguments[0] {
        Value::Decimal { units, .. } => Ok(units.to_value()),
        other => Err(EvaluationError::expected("a Decimal", other)),
    }
}

fn same(arguments: &[Value]) -> Result<Value, EvaluationError> {
    Ok(arguments[0].clone())
}

fn into(arguments: &[Value]) -> Result<Value, EvaluationError> {
    Ok(match &arguments[0] {
        Value::Integer(number, _) => Value::Integer(*number, None),
        other => other.clone(),
    })
}

fn push(arguments: &[Value]) -> Result<Value, EvaluationError> {
    let mut elements = list(&arguments[0])?.to_vec();
    elements.push(arguments[1].clone());
    Ok(Value::List(elements))
}

/// By insertion: the sorts of the standard library may panic where elements of several types have no order.
fn sort(arguments: &[Value]) -> Result<Value, EvaluationError> {
    let mut sorted: Vec<Value> = Vec::new();
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
    Ok(Value::List(sorted))
}

fn dedup(arguments: &[Value]) -> Result<Value, EvaluationError> {
    let mut kept: Vec<Value> = Vec::new();
    for element in list(&arguments[0])? {
        let repeated = kept.last().map_or(Ok(false), |last| equal(last, element))?;
        if !repeated {
            kept.push(element.clone());
        }
    }
    Ok(Value::List(kept))
}

fn enumerate(arguments: &[Value]) -> Result<Value, EvaluationError> {
    let pair = |(at, element): (usize, &Value)| Value::Tuple(vec![usize_value(at), element.clone()]);
    Ok(Value::List(list(&arguments[0])?.iter().enumerate().map(pair).collect()))
}

fn zip(arguments: &[Value]) -> Result<Value, EvaluationError> {
    let pairs = list(&arguments[0])?.iter().zip(list(&arguments[1])?);
    Ok(Value::List(pairs.map(|(a, b)| Value::Tuple(vec![a.clone(), b.clone()])).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<T: Data>(name: &str, arguments: &[Value]) -> T {
        T::from_value(&call(name, arguments).unwrap()).unwrap()
    }

    fn fails(result: Result<Value, EvaluationError>) -> String {
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
        let list = numbers.to_value();
        assert_eq!(value::<usize>("len", std::slice::from_ref(&list)), 5);
        assert_eq!(value::<usize>("len", &[Value::Text("é".into())]), 2);
        assert!(value::<bool>("is_empty", &[Value::Bytes(vec![])]));
        assert!(value::<bool>("is_some", &[Some(1u8).to_value()]));
        assert!(!value::<bool>("is_none", &[Some(1u8).to_value()]));
        assert_eq!(value::<u8>("unwrap_or", &[Value::NONE, 4u8.to_value()]), 4);
        assert_eq!(value::<u8>("unwrap_or", &[Some(1u8).to_value(), 4u8.to_value()]), 1);
        assert_eq!(value::<i8>("min", &[(-4i8).to_value(), 3i8.to_value()]), -4);
        assert_eq!(value::<i8>("max", &[(-4i8).to_value(), 3i8.to_value()]), 3);
        assert_eq!(value::<f64>("max", &[f64::NAN.to_value(), 3.0.to_value()]), 3.0);
        assert_eq!(value::<i8>("abs", &[(-4i8).to_value()]), 4);
        assert_eq!(call("abs", &[i8::MIN.to_value()]), Err(EvaluationError::Overflow));
        assert!(value::<bool>("contains", &[list.clone(), 2u8.to_value()]));
        assert!(!value::<bool>("contains", &[list.clone(), 9u8.to_value()]));
        assert!(value::<bool>("contains", &[Value::Text("original".into()), Value::Text("gin".into())]));
        assert!(value::<bool>("starts_with", &[Value::Text("PRIME".into()), Value::Text("PRI".into())]));
        assert!(value::<bool>("starts_with", &[list.clone(), vec![3u8, 1].to_value()]));
        assert!(!value::<bool>("starts_with", &[vec![3u8].to_value(), list.clone()]));
        assert_eq!(value::<i64>("units", &[Value::Decimal { units: 150, scale: 2 }]), 150);
        assert_eq!(value::<Vec<u8>>("push", &[list.clone(), 7u8.to_value()]), [3, 1, 3, 3, 2, 7]);
        assert_eq!(value::<Vec<u8>>("sort", std::slice::from_ref(&list)), [1, 2, 3, 3, 3]);
        assert_eq!(value::<Vec<u8>>("dedup", std::slice::from_ref(&list)), [3, 1, 3, 2]);
        assert_eq!(value::<Vec<u8>>("iter", std::slice::from_ref(&list)), numbers);
        assert_eq!(value::<Vec<(usize, bool)>>("enumerate", &[vec![true, false].to_value()]), [(0, true), (1, false)]);
        assert_eq!(value::<Vec<(u8, bool)>>("zip", &[list.clone(), vec![true].to_value()]), [(3, true)]);
        assert_eq!(call("clone", std::slice::from_ref(&list)), Ok(list));
        assert_eq!(value::<u64>("into", &[7u8.to_value()]), 7);
    }

    #[test]
    fn a_chosen_literal_has_the_type_of_the_other() {
        assert_eq!(call("max", &[Value::Integer(5, None), 3u8.to_value()]), Ok(5u8.to_value()));
        assert_eq!(call("min", &[3u8.to_value(), Value::Integer(300, None)]), Err(EvaluationError::Overflow));
    }

    #[test]
    fn associated_functions_make_the_types_they_are_written_with() {
        let of = |ty, name, value: Value| call_associated(ty, name, &[value]);
        assert_eq!(of("u32", "from", 7u8.to_value()), Ok(7u32.to_value()));
        assert_eq!(of("i64", "from", true.to_value()), Ok(1i64.to_value()));
        assert_eq!(of("u8", "from", Value::Integer(256, None)), Err(EvaluationError::Overflow));
        assert_eq!(fails(of("u8", "from", 7u16.to_value())), "u8::from does not take a u16");
        assert_eq!(fails(of("u64", "from", 7usize.to_value())), "u64::from does not take a usize");
        assert_eq!(fails(of("usize", "from", 7u32.to_value())), "usize::from does not take a u32");
        assert_eq!(of("Decimal :: < 2 >", "from_units", 7i64.to_value()), Ok(Value::Decimal { units: 7, scale: 2 }));
        assert!(fails(of("Money", "from_units", 7i64.to_value())).contains("the scale of `Money` is not known"));
        assert!(fails(of("Decimal::<19>", "from_units", 7i64.to_value())).contains("not known"));
        assert_eq!(of("seriatim::Text::<2>", "truncated", Value::Text("aé".into())), Ok(Value::Text("a".into())));
        assert_eq!(of("Text", "truncated", Value::Text("aé".into())), Ok(Value::Text("aé".into())));
        assert_eq!(of("Timestamp", "from_microseconds", 7i64.to_value()), Ok(Value::Timestamp(7)));
        assert_eq!(call_associated("Vec", "new", &[]), Ok(Value::List(vec![])));
        assert_eq!(call_associated("String", "new", &[]), Ok(Value::Text(String::new())));
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
            let argument = if function.name == "truncated" { Value::Text("a".into()) } else { Value::Integer(1, None) };
            let arguments = vec![argument; function.arity + 1];
            assert!(call_associated(ty, function.name, &arguments[1..]).is_ok(), "{ty}::{}", function.name);
            assert!(fails(call_associated(ty, function.name, &arguments)).contains("arguments, found"));
        }
    }

    #[test]
    fn methods_that_are_not_listed_or_do_not_fit_are_refused() {
        assert_eq!(fails(call("unwrap", &[Value::NONE])), "procedures have no method `unwrap`");
        assert_eq!(fails(call("len", &[])), "`len` takes 1 arguments, found 0");
        assert_eq!(fails(call("units", &[7u8.to_value()])), "expected a Decimal, found a u8");
        assert!(call("sort", &[vec![1.0, 2.0].to_value()]).is_err());
        assert!(call("sort", &[Value::List(vec![1u8.to_value(), 1u16.to_value()])]).is_err());
        for method in METHODS {
            for value in [Value::UNIT, Value::Float(f64::NAN), Value::Integer(i128::MIN, None)] {
                let _ = call(method.name, &vec![value; method.arity]);
            }
        }
    }
}

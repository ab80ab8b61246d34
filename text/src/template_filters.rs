//! Filters, tests and functions of transformers' template environment that minijinja lacks or does
//! differently.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};

use crate::error::TextError;
use crate::template_clock::Moment;
use crate::template_json::{dumps, JsonStyle};

pub fn install(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", tojson);
    environment.add_filter("int", to_int);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_function("raise_exception", raise_exception);
}

/// The name under which a render's moment is found.
pub const CLOCK: &str = "strftime_now";

pub fn clock_function(moment: Moment) -> Value {
    Value::from_function(move |pattern: &str| moment.format(pattern))
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let refusal = TextError::Refused(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "the template refuses").with_source(refusal))
}

/// The message of a `raise_exception` anywhere below `error`.
pub fn refusal(error: &Error) -> Option<String> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(TextError::Refused(message)) = cause.downcast_ref::<TextError>() {
            return Some(message.clone());
        }
        source = cause.source();
    }
    None
}

/// `tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn tojson(value: &Value, ascii: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let mut style = JsonStyle::default();
    let ascii = options.get::<Option<Value>>("ensure_ascii")?.or(ascii);
    style.ensure_ascii = ascii.is_some_and(|value| value.is_true());
    if let Some(indent) = options.get::<Option<Value>>("indent")? {
        if !indent.is_none() {
            style.indent = Some(match indent.as_str() {
                Some(text) => text.to_owned(),
                None => " ".repeat(usize::try_from(indent)?.min(1024)),
            });
            style.item_separator = ",".to_owned();
        }
    }
    if let Some(separators) = options.get::<Option<Value>>("separators")? {
        if !separators.is_none() {
            style.item_separator = separators.get_item_by_index(0)?.to_string();
            style.key_separator = separators.get_item_by_index(1)?.to_string();
        }
    }
    if let Some(sort_keys) = options.get::<Option<Value>>("sort_keys")? {
        style.sort_keys = sort_keys.is_true();
    }
    options.assert_all_used()?;
    dumps(value, &style).map(Value::from)
}

/// Python's `int`, with the default for what is no number.
fn to_int(value: &Value, default: Option<i64>, options: Kwargs) -> Result<i64, Error> {
    let default = options
        .get::<Option<i64>>("default")?
        .or(default)
        .unwrap_or(0);
    let base = options.get::<Option<u32>>("base")?.unwrap_or(10);
    options.assert_all_used()?;
    if let Some(text) = value.as_str() {
        let digits = text.trim().replace('_', "");
        if let Ok(number) = i64::from_str_radix(&digits, base.clamp(2, 36)) {
            return Ok(number);
        }
        return Ok(digits
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())
            .map_or(default, |number| number as i64));
    }
    if value.kind() == ValueKind::Bool {
        return Ok(i64::from(value.is_true()));
    }
    if let Some(number) = value.as_i64() {
        return Ok(number);
    }
    Ok(f64::try_from(value.clone()).map_or(default, |number| number as i64))
}

/// Whether Python's `iter` accepts it.
fn is_iterable(value: &Value) -> bool {
    match value.kind() {
        ValueKind::None => false,
        ValueKind::Undefined => true,
        _ => value.try_iter().is_ok(),
    }
}

/// Whether it has a length and items: text and mappings too.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Undefined | ValueKind::Seq | ValueKind::Map | ValueKind::String
    )
}

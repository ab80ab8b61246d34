//! Python's two ways to format: `'%s' % value` and `'{}'.format(value)`. The engine does the
//! formatting; here its arguments are prepared and its widths bounded.

use minijinja::formatting::{format, FormatStyle};
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind};
use minijinja::{Error, State, Value};

use crate::template_arguments::{charge, failure};
use crate::template_print;

/// Widths and precisions have at most so many digits.
const WIDEST: usize = 5;

/// `pattern % operand`; a tuple's items are the values, a mapping's are found by name.
pub fn percent(state: &State, pattern: &str, operand: &Value) -> Result<String, Error> {
    check_widths(pattern)?;
    let mut values = match operand.downcast_object_ref::<Tuple>() {
        Some(tuple) => tuple.to_vec(),
        None if operand.kind() == ValueKind::Map => return by_name(state, pattern, operand),
        None => vec![operand.clone()],
    };
    let (pattern, count) = convert(pattern, &mut values)?;
    if count < values.len() {
        return Err(failure("not all arguments converted during formatting"));
    }
    charged(state, format(FormatStyle::Printf, &pattern, &values)?)
}

fn by_name(state: &State, pattern: &str, mapping: &Value) -> Result<String, Error> {
    let mut named = Vec::new();
    for key in mapping.try_iter()?.checked() {
        let key = key?;
        if let Some(name) = key.as_str() {
            named.push((name.to_owned(), mapping.get_item(&key)?));
        }
    }
    let mut values = if pattern.contains("%(") {
        vec![Value::from(named.into_iter().collect::<Kwargs>())]
    } else {
        vec![mapping.clone()]
    };
    let (pattern, _) = convert(pattern, &mut values)?;
    charged(state, format(FormatStyle::Printf, &pattern, &values)?)
}

/// Brings the conversions that the engine lacks into others; counts those that take a value.
fn convert(pattern: &str, values: &mut [Value]) -> Result<(String, usize), Error> {
    let mut converted = String::with_capacity(pattern.len());
    let mut count = 0;
    let mut rest = pattern;
    while let Some(start) = rest.find('%') {
        let (before, conversion) = rest.split_at(start);
        converted.push_str(before);
        let named = conversion[1..].starts_with('(');
        let flags = match conversion.find(')') {
            Some(end) if named => end + 1,
            _ => 1,
        };
        let end = conversion[flags..]
            .find(|c: char| !"-+ #0123456789.*lhL".contains(c))
            .map(|index| flags + index)
            .ok_or_else(|| failure("incomplete format"))?;
        let kind = conversion[end..].chars().next().unwrap_or('%');
        converted.push_str(&conversion[..end]);
        let value = if kind == '%' || named {
            None
        } else {
            values.get_mut(count)
        };
        count += usize::from(kind != '%' && !named);
        converted.push(convert_kind(kind, value)?);
        rest = &conversion[end + kind.len_utf8()..];
    }
    converted.push_str(rest);
    Ok((converted, count))
}

fn convert_kind(kind: char, value: Option<&mut Value>) -> Result<char, Error> {
    match (kind, value) {
        ('r' | 'a', Some(value)) => {
            *value = Value::from(template_print::repr(value)?);
            Ok('s')
        }
        ('s', Some(value)) => {
            *value = Value::from(template_print::text(value)?);
            Ok('s')
        }
        ('d' | 'i' | 'u', Some(value)) => {
            *value = match value.kind() {
                ValueKind::Bool => Value::from(i64::from(value.is_true())),
                ValueKind::Number if value.is_integer() => value.clone(),
                ValueKind::Number => Value::from(f64::try_from(value.clone())? as i64),
                other => return Err(failure(format!("%d needs a number, not {other}"))),
            };
            Ok('d')
        }
        ('i' | 'u', None) => Ok('d'),
        (other, _) => Ok(other),
    }
}

/// `text.format(*values, **named)`.
pub fn braces(state: &State, pattern: &str, values: &[Value]) -> Result<String, Error> {
    check_widths(pattern)?;
    let wide = |value: &Value| {
        value
            .as_i64()
            .is_some_and(|n| n >= 10_i64.pow(WIDEST as u32))
    };
    if pattern.contains(":{") && values.iter().any(wide) {
        return Err(failure("a width is too large"));
    }
    charged(state, format(FormatStyle::StrFormat, pattern, values)?)
}

/// The `format` filter, which formats with `%`.
pub fn format_filter(
    state: &mut State,
    pattern: &str,
    values: Rest<minijinja::value::ValueOrKwargs>,
) -> Result<String, Error> {
    let values = values.into_values();
    match values.as_slice() {
        [named] if named.is_kwargs() => percent(state, pattern, named),
        _ => percent(state, pattern, &Value::from(Tuple::from(values))),
    }
}

fn charged(state: &State, text: String) -> Result<String, Error> {
    charge(state, text.len())?;
    Ok(text)
}

fn check_widths(pattern: &str) -> Result<(), Error> {
    let mut digits = 0;
    for character in pattern.chars() {
        digits = if character.is_ascii_digit() {
            digits + 1
        } else {
            0
        };
        if digits > WIDEST {
            return Err(failure("a width is too large"));
        }
    }
    Ok(())
}

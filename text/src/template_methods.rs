//! Python's string, list and dict methods that minijinja's own set lacks.

use minijinja::value::{from_args, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

pub fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => string_method(value.as_str().unwrap_or(""), method, arguments),
        ValueKind::Seq => list_method(value, method, arguments),
        _ => Ok(None),
    };
    match own? {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, arguments),
    }
}

fn string_method(text: &str, method: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    let result = match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            match text.split_once(separator) {
                Some((before, after)) => parts(&[before, separator, after]),
                None => parts(&[text, "", ""]),
            }
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            match text.rsplit_once(separator) {
                Some((before, after)) => parts(&[before, separator, after]),
                None => parts(&["", "", text]),
            }
        }
        "rsplit" => {
            let (separator, limit): (Option<&str>, Option<i64>) = from_args(arguments)?;
            right_split(text, separator, limit)
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn parts(texts: &[&str]) -> Value {
    texts.iter().map(|text| Value::from(*text)).collect()
}

fn right_split(text: &str, separator: Option<&str>, limit: Option<i64>) -> Value {
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX - 1);
    let mut found: Vec<&str> = Vec::new();
    match separator {
        Some(separator) => found.extend(text.rsplitn(limit + 1, separator)),
        None => {
            let mut rest = text.trim_end();
            while !rest.is_empty() && found.len() < limit {
                let start = rest
                    .char_indices()
                    .rev()
                    .find(|(_, character)| character.is_whitespace())
                    .map_or(0, |(index, character)| index + character.len_utf8());
                found.push(&rest[start..]);
                rest = rest[..start].trim_end();
            }
            if !rest.is_empty() {
                found.push(rest);
            }
        }
    }
    found.into_iter().rev().map(Value::from).collect()
}

fn list_method(value: &Value, method: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    if method != "index" {
        return Ok(None);
    }
    let (wanted,): (&Value,) = from_args(arguments)?;
    for (index, item) in value.try_iter()?.checked().enumerate() {
        if item? == *wanted {
            return Ok(Some(Value::from(index)));
        }
    }
    Err(Error::new(
        ErrorKind::InvalidOperation,
        "the value is not in the list",
    ))
}

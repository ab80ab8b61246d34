//! Values as text: Python's `str` and `repr`.

use std::sync::OnceLock;

use minijinja::value::ValueKind;
use minijinja::{escape_formatter, Error, Output, State, Value};
use regex::Regex;

use crate::template_arguments::failure;
use crate::template_json::python_float;

/// Values nested deeper are refused: printing them recurses.
const DEEPEST: usize = 500;

/// Longer texts of one value are refused: lists that hold the same list twice, again and again, are
/// small and have endless texts.
const LONGEST: usize = 64 << 20;

/// Refuses values that are nested too deeply or whose text is too long.
pub fn check_size(text: &str, depth: usize) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(failure("a value is nested too deeply to print"));
    }
    if text.len() > LONGEST {
        return Err(failure("a value is too long to print"));
    }
    Ok(())
}

/// What `{{ value }}` writes.
pub fn write(output: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if is_native(value) {
        escape_formatter(output, state, value)
    } else {
        output.write_str(&text(value)?).map_err(Error::from)
    }
}

/// Whether the engine prints it as Python does.
fn is_native(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Number => value.is_integer(),
        ValueKind::Seq | ValueKind::Map | ValueKind::Bytes => false,
        _ => true,
    }
}

/// Python's `str(value)`.
pub fn text(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) if value.kind() == ValueKind::String => Ok(text.to_owned()),
        _ if value.is_undefined() => Ok(String::new()),
        _ => repr(value),
    }
}

/// Python's `repr(value)`.
pub fn repr(value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    write_repr(&mut text, value, 0)?;
    Ok(text)
}

fn write_repr(text: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    check_size(text, depth)?;
    match value.kind() {
        ValueKind::Undefined => text.push_str("Undefined"),
        ValueKind::String => write_quoted(text, value.as_str().unwrap_or("")),
        ValueKind::Bytes => write_bytes(text, value.as_bytes().unwrap_or(&[])),
        ValueKind::Number if !value.is_integer() => {
            text.push_str(&python_float(f64::try_from(value.clone())?));
        }
        ValueKind::Seq => write_sequence(text, value, depth)?,
        ValueKind::Map => write_mapping(text, value, depth)?,
        _ => text.push_str(&value.to_string()),
    }
    Ok(())
}

fn write_sequence(text: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    let (open, close) = if value.is_tuple() {
        ('(', ')')
    } else {
        ('[', ']')
    };
    text.push(open);
    let mut count = 0;
    for item in value.try_iter()?.checked() {
        if count > 0 {
            text.push_str(", ");
        }
        write_repr(text, &item?, depth + 1)?;
        count += 1;
    }
    if count == 1 && value.is_tuple() {
        text.push(',');
    }
    text.push(close);
    Ok(())
}

fn write_mapping(text: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    text.push('{');
    for (index, key) in value.try_iter()?.checked().enumerate() {
        let key = key?;
        if index > 0 {
            text.push_str(", ");
        }
        write_repr(text, &key, depth + 1)?;
        text.push_str(": ");
        write_repr(text, &value.get_item(&key)?, depth + 1)?;
    }
    text.push('}');
    Ok(())
}

/// Single quotes unless the text has some and no double ones; what is not printable is escaped.
fn write_quoted(text: &mut String, content: &str) {
    let quote = if content.contains('\'') && !content.contains('"') {
        '"'
    } else {
        '\''
    };
    text.push(quote);
    for character in content.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            _ if character == quote => {
                text.push('\\');
                text.push(quote);
            }
            _ if is_printable(character) => text.push(character),
            _ => match character as u32 {
                code @ 0..=0xff => text.push_str(&format!("\\x{code:02x}")),
                code @ 0x100..=0xffff => text.push_str(&format!("\\u{code:04x}")),
                code => text.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    text.push(quote);
}

fn write_bytes(text: &mut String, bytes: &[u8]) {
    text.push_str("b'");
    for byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\'' => text.push_str("\\'"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            0x20..=0x7e => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('\'');
}

/// Python's `str.isprintable` of one character.
pub fn is_printable(character: char) -> bool {
    static OTHERS: OnceLock<Regex> = OnceLock::new();
    if character.is_ascii() {
        return (' '..='~').contains(&character);
    }
    !in_class(character, r"[\p{C}\p{Z}]", &OTHERS)
}

/// Whether it is a decimal digit of any script.
pub fn is_decimal(character: char) -> bool {
    static DIGITS: OnceLock<Regex> = OnceLock::new();
    in_class(character, r"\p{Nd}", &DIGITS)
}

fn in_class(character: char, class: &str, compiled: &'static OnceLock<Regex>) -> bool {
    let mut buffer = [0; 4];
    let text: &str = character.encode_utf8(&mut buffer);
    compiled
        .get_or_init(|| Regex::new(class).expect("a valid character class"))
        .is_match(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_nested_too_deeply_are_refused() {
        let mut value = Value::from(1);
        for _ in 0..=DEEPEST {
            value = Value::from(vec![value]);
        }
        assert!(repr(&value).is_err());
    }
}

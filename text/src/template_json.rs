//! JSON as Python's `json.dumps` writes it.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use crate::template_print::check_size;

/// The arguments of `json.dumps` that templates use.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Default for JsonStyle {
    fn default() -> Self {
        Self {
            ensure_ascii: false,
            indent: None,
            item_separator: ", ".to_owned(),
            key_separator: ": ".to_owned(),
            sort_keys: false,
        }
    }
}

pub fn dumps(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut text = String::new();
    write_value(&mut text, value, style, 0)?;
    Ok(text)
}

/// A float as Python's `repr` writes it; JSON and text output share it.
pub fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // The shortest digits that read back as the same number, and their decimal exponent.
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') {
            plain
        } else {
            format!("{plain}.0")
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn write_value(
    text: &mut String,
    value: &Value,
    style: &JsonStyle,
    depth: usize,
) -> Result<(), Error> {
    check_size(text, depth)?;
    match value.kind() {
        ValueKind::None => text.push_str("null"),
        ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => text.push_str(&number(value)?),
        ValueKind::String => write_string(text, value.as_str().unwrap_or(""), style.ensure_ascii),
        ValueKind::Seq => write_array(text, value, style, depth)?,
        ValueKind::Map => write_object(text, value, style, depth)?,
        other => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("an object of type {other} is not JSON serializable"),
            ))
        }
    }
    Ok(())
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    let number = f64::try_from(value.clone())?;
    Ok(if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned()
    } else {
        python_float(number)
    })
}

fn write_array(
    text: &mut String,
    value: &Value,
    style: &JsonStyle,
    depth: usize,
) -> Result<(), Error> {
    text.push('[');
    let mut empty = true;
    for item in value.try_iter()?.checked() {
        separate(text, style, depth, empty);
        empty = false;
        write_value(text, &item?, style, depth + 1)?;
    }
    if !empty {
        new_line(text, style, depth);
    }
    text.push(']');
    Ok(())
}

fn write_object(
    text: &mut String,
    value: &Value,
    style: &JsonStyle,
    depth: usize,
) -> Result<(), Error> {
    let mut entries = Vec::new();
    for key in value.try_iter()?.checked() {
        let key = key?;
        let item = value.get_item(&key)?;
        entries.push((key_text(&key)?, item));
    }
    if style.sort_keys {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
    }
    text.push('{');
    for (index, (key, item)) in entries.iter().enumerate() {
        separate(text, style, depth, index == 0);
        write_string(text, key, style.ensure_ascii);
        text.push_str(&style.key_separator);
        write_value(text, item, style, depth + 1)?;
    }
    if !entries.is_empty() {
        new_line(text, style, depth);
    }
    text.push('}');
    Ok(())
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or("").to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number => number(key),
        other => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("keys of JSON objects must be text or plain values, not {other}"),
        )),
    }
}

fn separate(text: &mut String, style: &JsonStyle, depth: usize, first: bool) {
    if !first {
        text.push_str(&style.item_separator);
    }
    new_line(text, style, depth + 1);
}

fn new_line(text: &mut String, style: &JsonStyle, depth: usize) {
    if let Some(indent) = &style.indent {
        text.push('\n');
        text.push_str(&indent.repeat(depth));
    }
}

fn write_string(text: &mut String, content: &str, ensure_ascii: bool) {
    text.push('"');
    for character in content.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\0'..='\u{1f}' => text.push_str(&format!("\\u{:04x}", character as u32)),
            '\u{7f}'.. if ensure_ascii && character > '\u{7f}' => {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => text.push(character),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::value::Serde;

    /// Values from Python 3.11's `repr`.
    #[test]
    fn floats_as_python_prints_them() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (123_456_789.123, "123456789.123"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e300, "1.5e+300"),
            (-0.0, "-0.0"),
        ];
        for (number, expected) in cases {
            assert_eq!(python_float(number), expected);
        }
    }

    #[test]
    fn writes_as_json_dumps_does() {
        let value = Value::from(Serde(serde_json::json!({
            "b": [1, 2.0, "é<\u{1}😀"], "a": {}, "c": []
        })));
        let plain = dumps(&value, &JsonStyle::default()).unwrap_or_default();
        assert_eq!(
            plain,
            "{\"b\": [1, 2.0, \"é<\\u0001😀\"], \"a\": {}, \"c\": []}"
        );
        let style = JsonStyle {
            ensure_ascii: true,
            indent: Some("  ".to_owned()),
            item_separator: ",".to_owned(),
            sort_keys: true,
            ..Default::default()
        };
        let expected = "{\n  \"a\": {},\n  \"b\": [\n    1,\n    2.0,\n    \
                        \"\\u00e9<\\u0001\\ud83d\\ude00\"\n  ],\n  \"c\": []\n}";
        assert_eq!(dumps(&value, &style).unwrap_or_default(), expected);
    }
}

//! Lark grammars with JSON schemas in them: after `%json` one of a JSON value, after `%string`, which
//! stands in terminals, one of a text without quotes.

use serde_json::Value as Json;

use super::{schema, schema_text};
use crate::error::TextError;

const VALUE: &str = "%json";
const TEXT: &str = "%string";

/// The grammar with every schema after `%json` checked and made exact, as a schema on its own is,
/// and every one after `%string` turned into an expression.
pub fn prepare(text: &str) -> Result<String, TextError> {
    let mut prepared = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((start, marker)) = find_marker(rest) {
        prepared.push_str(&rest[..start]);
        let after = &rest[start + marker.len()..];
        let (value, length) = first_value(after, marker)?;
        if marker == VALUE {
            prepared.push_str(VALUE);
            prepared.push(' ');
            prepared.push_str(&schema::prepare(value)?.to_string());
        } else {
            prepared.push_str(&schema_text::expression(&value)?);
        }
        rest = &after[length..];
    }
    prepared.push_str(rest);
    Ok(prepared)
}

/// The JSON value at the beginning of `text`, and its bytes.
fn first_value(text: &str, marker: &str) -> Result<(Json, usize), TextError> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Json>();
    match values.next() {
        Some(Ok(value)) => Ok((value, values.byte_offset())),
        Some(Err(error)) => Err(TextError::refused(format!(
            "what follows {marker} is not JSON: {error}"
        ))),
        None => Err(TextError::refused(format!("nothing follows {marker}"))),
    }
}

/// The next marker that is no part of a string, an expression or a comment, and where it stands.
fn find_marker(text: &str) -> Option<(usize, &'static str)> {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'"' => i = skip_quoted(bytes, i, b'"'),
            b'/' if bytes.get(i + 1) == Some(&b'/') => i = skip_line(bytes, i),
            b'/' => i = skip_quoted(bytes, i, b'/'),
            b'#' => i = skip_line(bytes, i),
            b'%' => match [VALUE, TEXT]
                .iter()
                .find(|mark| text[i..].starts_with(**mark))
            {
                Some(marker) => return Some((i, marker)),
                None => i += 1,
            },
            _ => i += 1,
        }
    }
    None
}

fn skip_quoted(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut i = start + 1;
    while i < bytes.len() && bytes[i] != quote {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    i + 1
}

fn skip_line(bytes: &[u8], start: usize) -> usize {
    bytes[start..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(bytes.len(), |length| start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_in_a_grammar_are_checked() {
        let text = "start: \"%json {\" %json {\"type\": \"string\"} /%json\\//\n# %json\n";
        let prepared = prepare(text).unwrap();
        assert!(prepared.starts_with("start: \"%json {\" %json {\"type\":\"string\""));
        assert!(prepared.ends_with("} /%json\\//\n# %json\n"));
        let error = prepare("start: %json {\"uniqueItems\": true}").unwrap_err();
        assert!(error.to_string().contains("uniqueItems"), "{error}");
        let prepared = prepare("T: %string {\"maxLength\": 2} \"%string\"\n").unwrap();
        assert_eq!(prepared, "T: (/(?s:.{0,2})/) \"%string\"\n");
    }
}

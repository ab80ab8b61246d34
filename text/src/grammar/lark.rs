//! Lark grammars with JSON schemas in them.

use serde_json::Value as Json;

use super::schema;
use crate::error::TextError;

const MARKER: &str = "%json";

/// The grammar with every schema after `%json` checked and made exact, as a schema on its own is.
pub fn prepare(text: &str) -> Result<String, TextError> {
    let mut prepared = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = find_marker(rest) {
        let (before, after) = rest.split_at(start + MARKER.len());
        prepared.push_str(before);
        let (value, length) = first_value(after)?;
        prepared.push(' ');
        prepared.push_str(&schema::prepare(value)?.to_string());
        rest = &after[length..];
    }
    prepared.push_str(rest);
    Ok(prepared)
}

/// The JSON value at the beginning of `text`, and its bytes.
fn first_value(text: &str) -> Result<(Json, usize), TextError> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Json>();
    match values.next() {
        Some(Ok(value)) => Ok((value, values.byte_offset())),
        Some(Err(error)) => Err(TextError::refused(format!(
            "what follows %json is not JSON: {error}"
        ))),
        None => Err(TextError::refused("nothing follows %json")),
    }
}

/// Where the next `%json` stands that is no part of a string, an expression or a comment.
fn find_marker(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'"' => i = skip_quoted(bytes, i, b'"'),
            b'/' if bytes.get(i + 1) == Some(&b'/') => i = skip_line(bytes, i),
            b'/' => i = skip_quoted(bytes, i, b'/'),
            b'#' => i = skip_line(bytes, i),
            b'%' if text[i..].starts_with(MARKER) => return Some(i),
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
    }
}

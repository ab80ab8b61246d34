//! Texts without quotes that satisfy the string keywords of a schema, as a terminal of Lark.

use llguidance::regex_to_lark;
use serde_json::Value as Json;

use super::pattern::from_ecma;
use super::schema::{make_count, place, unsupported, wrong_type};
use super::schema_formats::{format, text_pattern, Format};
use super::schema_rules::{rule, Rule};
use crate::error::TextError;

const ANY_TEXT: &str = "(?s:.*)";

/// Keywords that say nothing about strings.
const OF_OTHER_TYPES: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxContains",
    "maxItems",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minProperties",
    "minimum",
    "multipleOf",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// Keywords that give names, and `type`: that it allows strings is for the caller to see to.
const OF_THE_DOCUMENT: &[&str] = &[
    "$anchor",
    "$defs",
    "$dynamicAnchor",
    "$id",
    "$schema",
    "definitions",
    "id",
    "type",
];

/// The expression, in brackets, that matches the strings of a schema. References, choices and
/// enumerations are refused, as all that cannot be expressed is.
pub fn expression(schema: &Json) -> Result<String, TextError> {
    let mut parts = Vec::new();
    collect(schema, "", &mut parts)?;
    if parts.is_empty() {
        parts.push(format!("/{ANY_TEXT}/"));
    }
    Ok(format!("({})", parts.join(" & ")))
}

/// Adds the expressions that all have to match.
fn collect(schema: &Json, pointer: &str, parts: &mut Vec<String>) -> Result<(), TextError> {
    let keywords = match schema {
        Json::Bool(true) => return Ok(()),
        Json::Object(keywords) => keywords,
        _ => {
            return Err(TextError::refused(format!(
                "{} is no schema of a string",
                place(pointer)
            )))
        }
    };
    let mut least = 0;
    let mut most = None;
    for (keyword, value) in keywords {
        let path = format!("{pointer}/{keyword}");
        match (keyword.as_str(), value) {
            ("minLength", _) => least = count(keyword, value, &path)?,
            ("maxLength", _) => most = Some(count(keyword, value, &path)?),
            ("pattern", Json::String(pattern)) => parts.push(search(pattern)?),
            ("pattern", _) => return Err(wrong_type(keyword, &path, "a string")),
            ("format", Json::String(name)) => parts.extend(format_part(name, &path)?),
            ("format", _) => return Err(wrong_type(keyword, &path, "a string")),
            ("allOf", Json::Array(schemas)) => {
                for schema in schemas {
                    collect(schema, &path, parts)?;
                }
            }
            ("not", Json::Bool(false)) => {}
            (name, _) if OF_OTHER_TYPES.contains(&name) || OF_THE_DOCUMENT.contains(&name) => {}
            (name, _) if matches!(rule(name), Rule::Annotation | Rule::Unknown) => {}
            _ => return Err(unsupported(keyword, &path)),
        }
    }
    if least > 0 || most.is_some() {
        let most = most.map_or(String::new(), |most| most.to_string());
        parts.push(format!("/(?s:.{{{least},{most}}})/"));
    }
    Ok(())
}

fn count(keyword: &str, value: &Json, path: &str) -> Result<u64, TextError> {
    let mut value = value.clone();
    make_count(keyword, &mut value, path)?;
    Ok(value.as_u64().unwrap_or_default())
}

fn format_part(name: &str, path: &str) -> Result<Option<String>, TextError> {
    let pattern = match format(name) {
        Format::Descriptive => return Ok(None),
        Format::Pattern(pattern) => Some(pattern),
        Format::Known => text_pattern(name),
        Format::Unsupported => None,
    };
    let pattern = pattern.ok_or_else(|| {
        TextError::refused(format!(
            "the format {name:?} at {} is not supported",
            place(path)
        ))
    })?;
    search(&pattern).map(Some)
}

/// The expression of whole texts in which the pattern matches somewhere.
fn search(pattern: &str) -> Result<String, TextError> {
    let translated = from_ecma(pattern)?;
    let (group, body) = match translated.strip_prefix("(?i)") {
        Some(body) => ("?i:", body),
        None => ("?:", translated.as_str()),
    };
    if body.contains("(?i)") {
        return Err(TextError::refused(format!(
            "the pattern {pattern:?} is not supported: it has flags in its middle"
        )));
    }
    let whole: Vec<String> = alternatives(body)
        .into_iter()
        .map(|alternative| {
            let (start, rest) = match alternative.strip_prefix('^') {
                Some(rest) => ("", rest),
                None => (ANY_TEXT, alternative),
            };
            let (rest, end) = match rest.strip_suffix('$') {
                Some(rest) if !ends_escaped(rest) => (rest, ""),
                _ => (rest, ANY_TEXT),
            };
            format!("{start}({group}{rest}){end}")
        })
        .collect();
    Ok(format!("/{}/", regex_to_lark(&whole.join("|"), "dw")))
}

/// Whether what follows has a backslash before it.
fn ends_escaped(text: &str) -> bool {
    text.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

/// The parts between the `|` that stand in no group and no class.
fn alternatives(pattern: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut depth = 0;
    let mut in_class = false;
    let mut escaped = false;
    for (index, character) in pattern.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' if depth == 0 => {
                parts.push(&pattern[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&pattern[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keywords_of_strings_become_one_expression() {
        let schema = json!({"type": ["string", "integer"], "minimum": 3, "title": "x"});
        assert_eq!(expression(&schema).unwrap(), "(/(?s:.*)/)");
        let schema = json!({"pattern": "^a|b[|$]c$|\\$", "maxLength": 5});
        assert_eq!(
            expression(&schema).unwrap(),
            "(/(?:a)(?s:.*)|(?s:.*)(?:b[|$]c)|(?s:.*)(?:\\$)(?s:.*)/ & /(?s:.{0,5})/)"
        );
        for name in ["date", "email", "ipv6", "uri", "duration", "hostname"] {
            assert!(expression(&json!({"format": name})).is_ok(), "{name}");
        }
        for refused in [
            json!({"not": {"type": "null"}}),
            json!({"enum": ["a"]}),
            json!({"format": "iri"}),
            json!({"pattern": "(?=a)"}),
            json!({"minLength": -1}),
        ] {
            assert!(expression(&refused).is_err(), "{refused}");
        }
    }
}

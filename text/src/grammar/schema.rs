//! JSON schemas made ready for llguidance, which takes some keywords for more or less than they say:
//! what it would ignore or get wrong is rewritten into what it does exactly, or refused by name.

use std::collections::HashSet;

use serde_json::{json, Map, Value as Json};

use super::pattern::{from_ecma, is_expressible};
use super::schema_rewrite::{add_all, rewrite};
use super::schema_rules::{is_neutral, rule, Rule};
use super::schema_unions::are_disjoint;
use crate::error::TextError;

pub(super) type Keywords = Map<String, Json>;

/// White space between the parts of a text: models that may write any amount of it do.
const WHITE_SPACE: &str = r" |\r?\n[ \t]{0,40}";
/// Escapes in strings. Without `\u` every text has one spelling, so that a key cannot stand for
/// another one in disguise.
const ESCAPES: &str = "nrbtf\\\"";
/// Integers beyond it are not all `f64`, in which bounds are computed.
const EXACT_LIMIT: f64 = 9_007_199_254_740_992.0;

/// Parses and prepares a schema.
pub fn read(text: &str) -> Result<Json, TextError> {
    let schema = serde_json::from_str(text)
        .map_err(|error| TextError::refused(format!("the schema is not JSON: {error}")))?;
    prepare(schema)
}

/// The schema with every keyword checked and llguidance's options set.
pub fn prepare(mut schema: Json) -> Result<Json, TextError> {
    if let Json::Bool(allowed) = schema {
        if !allowed {
            return Err(TextError::refused("the schema is false: it allows nothing"));
        }
        schema = json!({});
    }
    let mut walk = Walk::default();
    walk.pending.push((String::new(), String::new()));
    while let Some((pointer, base)) = walk.pending.pop() {
        if let Some(target) = schema.pointer_mut(&pointer) {
            walk.schema(target, &pointer, &base)?;
        }
    }
    for (pointer, base) in walk.unions {
        settle_union(&mut schema, &pointer, &base)?;
    }
    if let Json::Object(keywords) = &mut schema {
        keywords.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_pattern": WHITE_SPACE, "json_allowed_escapes": ESCAPES}),
        );
    }
    Ok(schema)
}

/// Goes through every schema of a document, those that only a `$ref` reaches included.
#[derive(Default)]
struct Walk {
    /// JSON pointers of the schemas seen.
    seen: HashSet<String>,
    /// Schemas to go through yet: pointer, and pointer of the resource they are part of.
    pending: Vec<(String, String)>,
    /// Those with `oneOf`, in the same form.
    unions: Vec<(String, String)>,
}

impl Walk {
    fn schema(&mut self, schema: &mut Json, pointer: &str, base: &str) -> Result<(), TextError> {
        if !self.seen.insert(pointer.to_owned()) {
            return Ok(());
        }
        let keywords = match schema {
            Json::Bool(_) => return Ok(()),
            Json::Object(keywords) => keywords,
            _ => {
                return Err(TextError::refused(format!(
                    "{} is neither an object nor true or false",
                    place(pointer)
                )))
            }
        };
        rewrite(keywords, pointer)?;
        let has_id = keywords
            .get("$id")
            .and_then(Json::as_str)
            .is_some_and(|id| !id.starts_with('#'));
        let base = if has_id { pointer } else { base };
        if keywords.contains_key("oneOf") {
            self.unions.push((pointer.to_owned(), base.to_owned()));
        }
        check_free_properties(keywords, pointer)?;
        let siblings = keywords.clone();
        let mut kept = Keywords::new();
        for (keyword, mut value) in std::mem::take(keywords) {
            let path = format!("{pointer}/{}", escape_pointer(&keyword));
            if self.keep(&keyword, &mut value, &path, base, &siblings)? {
                kept.insert(keyword, value);
            }
        }
        *keywords = kept;
        Ok(())
    }

    /// Checks a keyword's value and makes it exact; false when it is to be dropped.
    fn keep(
        &mut self,
        keyword: &str,
        value: &mut Json,
        path: &str,
        base: &str,
        siblings: &Keywords,
    ) -> Result<bool, TextError> {
        match rule(keyword) {
            Rule::Plain => {}
            // Unknown keywords stay where they are: a `$ref` may lead into them.
            Rule::Unknown => return Ok(value.is_object() || value.is_array()),
            Rule::Annotation => return Ok(false),
            Rule::Schema => self.schema(value, path, base)?,
            Rule::SchemaOrList if value.is_object() || value.is_boolean() => {
                self.schema(value, path, base)?;
            }
            Rule::SchemaOrList | Rule::List => self.list(keyword, value, path, base)?,
            Rule::Map => self.map(keyword, value, path, base)?,
            Rule::Count => make_count(keyword, value, path)?,
            Rule::Number => check_numbers(keyword, value, path)?,
            Rule::Literal => check_literal(keyword, value, path)?,
            Rule::Pattern => translate(value, path)?,
            Rule::PatternMap => {
                self.map(keyword, value, path, base)?;
                translate_keys(value)?;
            }
            // What was no pattern is llguidance's own.
            Rule::Format => {}
            Rule::Reference => self.reference(value, path, base)?,
            Rule::Rewritten | Rule::Refused => {
                if !is_neutral(keyword, value, siblings) {
                    return Err(unsupported(keyword, path));
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn list(
        &mut self,
        keyword: &str,
        value: &mut Json,
        path: &str,
        base: &str,
    ) -> Result<(), TextError> {
        let Json::Array(schemas) = value else {
            return Err(wrong_type(keyword, path, "an array of schemas"));
        };
        for (index, schema) in schemas.iter_mut().enumerate() {
            self.schema(schema, &format!("{path}/{index}"), base)?;
        }
        Ok(())
    }

    fn map(
        &mut self,
        keyword: &str,
        value: &mut Json,
        path: &str,
        base: &str,
    ) -> Result<(), TextError> {
        let Json::Object(schemas) = value else {
            return Err(wrong_type(keyword, path, "an object of schemas"));
        };
        for (name, schema) in schemas.iter_mut() {
            self.schema(schema, &format!("{path}/{}", escape_pointer(name)), base)?;
        }
        Ok(())
    }

    fn reference(&mut self, value: &Json, path: &str, base: &str) -> Result<(), TextError> {
        let Some(reference) = value.as_str() else {
            return Err(wrong_type("$ref", path, "a string"));
        };
        if reference.contains("json-schema.org") {
            return Err(TextError::refused(format!(
                "$ref at {} leads to a metaschema, which is not supported",
                place(path)
            )));
        }
        if let Some(fragment) = reference.strip_prefix('#') {
            if fragment.is_empty() || fragment.starts_with('/') {
                let pointer = format!("{base}{}", percent_decode(fragment));
                self.pending.push((pointer, base.to_owned()));
            }
        }
        Ok(())
    }
}

/// Makes `oneOf` an `anyOf` where that is the same.
fn settle_union(document: &mut Json, pointer: &str, base: &str) -> Result<(), TextError> {
    let alternatives = document
        .pointer(&format!("{pointer}/oneOf"))
        .and_then(Json::as_array);
    let Some(alternatives) = alternatives.cloned() else {
        return Ok(());
    };
    if !are_disjoint(document, base, &alternatives) {
        return Err(TextError::refused(format!(
            "oneOf at {} is not supported: a value could satisfy two of its schemas; use anyOf",
            place(pointer)
        )));
    }
    if let Some(Json::Object(keywords)) = document.pointer_mut(pointer) {
        keywords.remove("oneOf");
        add_all(keywords, vec![json!({"anyOf": alternatives})], pointer)?;
    }
    Ok(())
}

/// Keys may be written twice, so that two free ones need not be two properties.
fn check_free_properties(keywords: &Keywords, pointer: &str) -> Result<(), TextError> {
    let least = keywords.get("minProperties").and_then(Json::as_f64);
    let required = keywords.get("required").and_then(Json::as_array);
    let free = least.unwrap_or(0.0) - required.map_or(0, Vec::len) as f64;
    if free > 1.0 {
        return Err(TextError::refused(format!(
            "minProperties at {} is not supported where it asks for more than one property that is \
             not in required",
            place(pointer)
        )));
    }
    Ok(())
}

pub(super) fn make_count(keyword: &str, value: &mut Json, path: &str) -> Result<(), TextError> {
    let refused = || wrong_type(keyword, path, "a whole number of at least 0");
    let number = value.as_f64().ok_or_else(refused)?;
    if number.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&number) {
        return Err(refused());
    }
    *value = Json::from(number as u64);
    Ok(())
}

fn check_numbers(keyword: &str, value: &Json, path: &str) -> Result<(), TextError> {
    // Draft 4 has `exclusiveMinimum: true`.
    let switch = value.is_boolean() && keyword.starts_with("exclusive");
    if !value.is_number() && !switch {
        return Err(wrong_type(keyword, path, "a number"));
    }
    check_literal(keyword, value, path)
}

/// Refuses numbers that would lose digits, and characters that strings cannot hold.
fn check_literal(keyword: &str, value: &Json, path: &str) -> Result<(), TextError> {
    match value {
        Json::Number(number) => {
            let exact = number
                .as_f64()
                .is_some_and(|number| number.abs() <= EXACT_LIMIT);
            if !exact {
                return Err(TextError::refused(format!(
                    "{keyword} at {} has the number {number}, which is not supported: it has more \
                     than 53 bits",
                    place(path)
                )));
            }
        }
        Json::Array(values) => {
            for value in values {
                check_literal(keyword, value, path)?;
            }
        }
        Json::Object(values) => {
            for value in values.values() {
                check_literal(keyword, value, path)?;
            }
        }
        Json::String(text) if !text.chars().all(is_expressible) => {
            return Err(TextError::refused(format!(
                "{keyword} at {} has a control character, which is not supported",
                place(path)
            )));
        }
        Json::Null | Json::Bool(_) | Json::String(_) => {}
    }
    Ok(())
}

fn translate(value: &mut Json, path: &str) -> Result<(), TextError> {
    let Some(pattern) = value.as_str() else {
        return Err(wrong_type("pattern", path, "a string"));
    };
    *value = Json::from(from_ecma(pattern)?);
    Ok(())
}

fn translate_keys(value: &mut Json) -> Result<(), TextError> {
    if let Json::Object(schemas) = value {
        for (pattern, schema) in std::mem::take(schemas) {
            schemas.insert(from_ecma(&pattern)?, schema);
        }
    }
    Ok(())
}

pub(super) fn unsupported(keyword: &str, path: &str) -> TextError {
    TextError::refused(format!(
        "the keyword {keyword} at {} is not supported",
        place(path)
    ))
}

pub(super) fn wrong_type(keyword: &str, path: &str, expected: &str) -> TextError {
    TextError::refused(format!("{keyword} at {} is not {expected}", place(path)))
}

pub(super) fn place(pointer: &str) -> String {
    format!("#{pointer}")
}

fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = text.get(i + 1..i + 3).filter(|_| bytes[i] == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                i += 3;
            }
            None => {
                decoded.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

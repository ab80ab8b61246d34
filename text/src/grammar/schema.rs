//! JSON schemas made ready for llguidance, which takes some keywords for more or less than they say:
//! what it would ignore or get wrong is rewritten into what it does exactly, or refused by name.

use std::collections::HashSet;

use serde_json::{json, Map, Value as Json};

use super::schema_rules::{
    allows_everything, is_neutral, rule, Rule, DESCRIPTIVE_FORMATS, ENFORCED_FORMATS,
    IN_PLACE_APPLICATORS,
};
use super::schema_unions::are_disjoint;
use crate::error::TextError;

type Keywords = Map<String, Json>;

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
            Rule::Format => return keep_format(value, path),
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

/// Turns keywords that llguidance does not know into others that say the same.
fn rewrite(keywords: &mut Keywords, pointer: &str) -> Result<(), TextError> {
    rewrite_items(keywords, pointer)?;
    rewrite_unevaluated(
        keywords,
        pointer,
        "unevaluatedProperties",
        "additionalProperties",
    )?;
    rewrite_unevaluated(keywords, pointer, "unevaluatedItems", "items")?;
    rewrite_conditions(keywords, pointer)?;
    let mut added = Vec::new();
    rewrite_dependencies(keywords, pointer, &mut added)?;
    rewrite_not(keywords, pointer, &mut added)?;
    add_all(keywords, added, pointer)
}

/// Adds schemas that hold as well.
fn add_all(keywords: &mut Keywords, added: Vec<Json>, pointer: &str) -> Result<(), TextError> {
    if added.is_empty() {
        return Ok(());
    }
    match keywords
        .entry("allOf")
        .or_insert_with(|| Json::Array(Vec::new()))
    {
        Json::Array(all) => all.extend(added),
        _ => return Err(wrong_type("allOf", pointer, "an array of schemas")),
    }
    Ok(())
}

/// Both generations of array keywords must not meet: llguidance takes the older for the newer.
fn rewrite_items(keywords: &mut Keywords, pointer: &str) -> Result<(), TextError> {
    let old = keywords.get("items").is_some_and(Json::is_array);
    if !old {
        keywords.remove("additionalItems");
    } else if keywords.contains_key("prefixItems") {
        return Err(TextError::refused(format!(
            "items at {} is an array although there is prefixItems",
            place(pointer)
        )));
    }
    Ok(())
}

/// Where no other schema is applied to the same value, what is unevaluated is what is additional.
fn rewrite_unevaluated(
    keywords: &mut Keywords,
    pointer: &str,
    keyword: &str,
    replacement: &str,
) -> Result<(), TextError> {
    let Some(value) = keywords.get(keyword) else {
        return Ok(());
    };
    if !allows_everything(value) {
        let applied = IN_PLACE_APPLICATORS
            .iter()
            .any(|name| keywords.contains_key(*name));
        if applied
            || keywords.contains_key("contains")
            || keywords.get("items").is_some_and(Json::is_array)
        {
            return Err(unsupported(keyword, pointer));
        }
        if !keywords.contains_key(replacement) {
            keywords.insert(replacement.to_owned(), value.clone());
        }
    }
    keywords.remove(keyword);
    Ok(())
}

/// `if` without a consequence, and consequences without `if`, say nothing.
fn rewrite_conditions(keywords: &mut Keywords, pointer: &str) -> Result<(), TextError> {
    let says = |name: &str| {
        keywords
            .get(name)
            .is_some_and(|value| !allows_everything(value))
    };
    if keywords.contains_key("if") && (says("then") || says("else")) {
        return Err(unsupported("if", pointer));
    }
    for name in ["if", "then", "else"] {
        keywords.remove(name);
    }
    Ok(())
}

/// A dependency is a choice: the property is absent, or the rest holds.
fn rewrite_dependencies(
    keywords: &mut Keywords,
    pointer: &str,
    added: &mut Vec<Json>,
) -> Result<(), TextError> {
    for keyword in ["dependentRequired", "dependentSchemas", "dependencies"] {
        let Some(value) = keywords.remove(keyword) else {
            continue;
        };
        let Json::Object(dependencies) = value else {
            return Err(wrong_type(keyword, pointer, "an object"));
        };
        for (name, dependency) in dependencies {
            let consequence = match dependency {
                Json::Array(required) => {
                    let mut names = vec![Json::from(name.as_str())];
                    names.extend(required);
                    names.dedup();
                    json!({"type": "object", "required": names})
                }
                schema => json!({"type": "object", "required": [name], "allOf": [schema]}),
            };
            let absent = without_property(&name);
            added.push(json!({"anyOf": [absent, consequence]}));
        }
    }
    Ok(())
}

/// What is no object, or an object without the property.
fn without_property(name: &str) -> Json {
    json!({"properties": {name: false}})
}

const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

fn rewrite_not(
    keywords: &mut Keywords,
    pointer: &str,
    added: &mut Vec<Json>,
) -> Result<(), TextError> {
    let Some(value) = keywords.remove("not") else {
        return Ok(());
    };
    if allows_everything(&value) {
        added.push(Json::Bool(false));
        return Ok(());
    }
    if value == Json::Bool(false) {
        return Ok(());
    }
    let refused = || unsupported("not", pointer);
    let Json::Object(inner) = &value else {
        return Err(refused());
    };
    let mut said = inner
        .iter()
        .filter(|(name, _)| !matches!(rule(name), Rule::Annotation | Rule::Unknown));
    match (said.next(), said.next()) {
        (Some((name, value)), None) if name == "type" => {
            let excluded: Vec<&str> = match value {
                Json::String(name) => vec![name],
                Json::Array(names) => names.iter().filter_map(Json::as_str).collect(),
                _ => return Err(refused()),
            };
            if excluded.contains(&"integer") && !excluded.contains(&"number") {
                return Err(refused());
            }
            let rest: Vec<&str> = TYPES
                .into_iter()
                .filter(|name| !excluded.contains(name))
                .collect();
            added.push(if rest.is_empty() {
                Json::Bool(false)
            } else {
                json!({"type": rest})
            });
            Ok(())
        }
        _ => Err(refused()),
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

fn make_count(keyword: &str, value: &mut Json, path: &str) -> Result<(), TextError> {
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

/// Refuses numbers that would lose digits.
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
        Json::Null | Json::Bool(_) | Json::String(_) => {}
    }
    Ok(())
}

fn keep_format(value: &Json, path: &str) -> Result<bool, TextError> {
    let Some(format) = value.as_str() else {
        return Err(wrong_type("format", path, "a string"));
    };
    if DESCRIPTIVE_FORMATS.contains(&format) {
        return Ok(false);
    }
    if ENFORCED_FORMATS.contains(&format) {
        return Ok(true);
    }
    Err(TextError::refused(format!(
        "format {format:?} at {} is not supported",
        place(path)
    )))
}

fn unsupported(keyword: &str, path: &str) -> TextError {
    TextError::refused(format!(
        "the keyword {keyword} at {} is not supported",
        place(path)
    ))
}

fn wrong_type(keyword: &str, path: &str, expected: &str) -> TextError {
    TextError::refused(format!("{keyword} at {} is not {expected}", place(path)))
}

fn place(pointer: &str) -> String {
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

//! Keywords that llguidance does not know, turned into others that say the same.

use serde_json::{json, Value as Json};

use super::schema::{place, unsupported, wrong_type, Keywords};
use super::schema_formats::{format, Format};
use super::schema_rules::{allows_everything, rule, Rule, IN_PLACE_APPLICATORS};
use crate::error::TextError;

/// Rewrites the keywords of one schema.
pub fn rewrite(keywords: &mut Keywords, pointer: &str) -> Result<(), TextError> {
    rewrite_items(keywords, pointer)?;
    rewrite_dynamic_anchor(keywords, pointer)?;
    rewrite_property_names(keywords, pointer)?;
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
    rewrite_format(keywords, pointer, &mut added)?;
    add_all(keywords, added, pointer)
}

/// Adds schemas that hold as well.
pub fn add_all(keywords: &mut Keywords, added: Vec<Json>, pointer: &str) -> Result<(), TextError> {
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

fn rewrite_format(
    keywords: &mut Keywords,
    pointer: &str,
    added: &mut Vec<Json>,
) -> Result<(), TextError> {
    let Some(value) = keywords.get("format") else {
        return Ok(());
    };
    let Some(name) = value.as_str() else {
        return Err(wrong_type("format", pointer, "a string"));
    };
    match format(name) {
        Format::Known => return Ok(()),
        Format::Pattern(pattern) => added.push(json!({"pattern": pattern})),
        Format::Descriptive => {}
        Format::Unsupported => {
            return Err(TextError::refused(format!(
                "the format {name:?} at {} is not supported",
                place(pointer)
            )))
        }
    }
    keywords.remove("format");
    Ok(())
}

/// Without `$dynamicRef`, which is refused, it is an anchor as any other.
fn rewrite_dynamic_anchor(keywords: &mut Keywords, pointer: &str) -> Result<(), TextError> {
    let Some(anchor) = keywords.remove("$dynamicAnchor") else {
        return Ok(());
    };
    if keywords.contains_key("$anchor") {
        return Err(unsupported("$dynamicAnchor", pointer));
    }
    keywords.insert("$anchor".to_owned(), anchor);
    Ok(())
}

/// Where no property is named otherwise, conditions on names say which properties there may be.
fn rewrite_property_names(keywords: &mut Keywords, pointer: &str) -> Result<(), TextError> {
    let Some(names) = keywords.remove("propertyNames") else {
        return Ok(());
    };
    if allows_everything(&names) {
        return Ok(());
    }
    let refused = || unsupported("propertyNames", pointer);
    let named = ["properties", "patternProperties", "unevaluatedProperties"];
    if named.iter().any(|name| keywords.contains_key(*name)) {
        return Err(refused());
    }
    let values = keywords
        .insert("additionalProperties".to_owned(), Json::Bool(false))
        .unwrap_or(Json::Bool(true));
    let Json::Object(conditions) = names else {
        return Ok(());
    };
    let said: Vec<(&String, &Json)> = conditions
        .iter()
        .filter(|(name, _)| !matches!(rule(name), Rule::Annotation | Rule::Unknown))
        .filter(|(name, value)| *name != "type" || **value != "string")
        .collect();
    let [(name, condition)] = said[..] else {
        return Err(refused());
    };
    let allowed: Vec<&Json> = match (name.as_str(), condition) {
        ("pattern", Json::String(pattern)) => {
            let properties = json!({pattern: values});
            keywords.insert("patternProperties".to_owned(), properties);
            return Ok(());
        }
        ("maxLength", Json::Number(most)) => {
            let properties = json!({format!("^[^]{{0,{most}}}$"): values});
            keywords.insert("patternProperties".to_owned(), properties);
            return Ok(());
        }
        ("const", value) => vec![value],
        ("enum", Json::Array(values)) => values.iter().collect(),
        _ => return Err(refused()),
    };
    let properties: Keywords = allowed
        .into_iter()
        .filter_map(Json::as_str)
        .map(|name| (name.to_owned(), values.clone()))
        .collect();
    keywords.insert("properties".to_owned(), Json::Object(properties));
    Ok(())
}

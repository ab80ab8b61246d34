//! Exclusive unions: llguidance takes any text of two alternatives, so `oneOf` is exact only where no
//! value can satisfy both.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

const DEPTH_LIMIT: usize = 16;

/// Whether it is certain that no value satisfies two of the alternatives. `base` is the JSON pointer
/// of the resource that their `$ref`s are relative to.
pub fn are_disjoint(document: &Json, base: &str, alternatives: &[Json]) -> bool {
    let described: Vec<Description> = alternatives
        .iter()
        .map(|schema| Description::of(document, base, schema))
        .collect();
    described.iter().enumerate().all(|(index, first)| {
        described[index + 1..]
            .iter()
            .all(|second| first.is_disjoint(second))
    })
}

/// Some conditions that every value of a schema fulfils.
struct Description<'a> {
    document: &'a Json,
    base: &'a str,
    impossible: bool,
    types: BTreeSet<&'a str>,
    /// Schemas that all hold: the schema itself and what it applies to the same value.
    parts: Vec<&'a Map<String, Json>>,
}

const TYPES: [&str; 7] = [
    "null", "boolean", "integer", "fraction", "string", "array", "object",
];

impl<'a> Description<'a> {
    fn of(document: &'a Json, base: &'a str, schema: &'a Json) -> Self {
        let mut description = Description {
            document,
            base,
            impossible: false,
            types: TYPES.into_iter().collect(),
            parts: Vec::new(),
        };
        description.add(schema, 0);
        description
    }

    fn add(&mut self, schema: &'a Json, depth: usize) {
        let keywords = match schema {
            Json::Bool(allowed) => {
                self.impossible |= !allowed;
                return;
            }
            Json::Object(keywords) if depth < DEPTH_LIMIT => keywords,
            _ => return,
        };
        self.parts.push(keywords);
        if let Some(types) = keywords.get("type") {
            let types = named_types(types);
            self.types.retain(|name| types.contains(name));
        }
        if let Some(values) = literals(keywords) {
            let types: BTreeSet<&str> = values.iter().map(|value| type_of(value)).collect();
            self.types.retain(|name| types.contains(name));
        }
        if let Some(target) = self.target(keywords) {
            self.add(target, depth + 1);
        }
        if let Some(Json::Array(all)) = keywords.get("allOf") {
            for schema in all {
                self.add(schema, depth + 1);
            }
        }
    }

    fn target(&self, keywords: &'a Map<String, Json>) -> Option<&'a Json> {
        let pointer = keywords.get("$ref")?.as_str()?.strip_prefix('#')?;
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return None;
        }
        self.document.pointer(&format!("{}{pointer}", self.base))
    }

    fn is_disjoint(&self, other: &Description<'a>) -> bool {
        if self.impossible || other.impossible {
            return true;
        }
        let common: Vec<&str> = self.types.intersection(&other.types).copied().collect();
        if common.is_empty() || self.differs_by_value(other) {
            return true;
        }
        common == ["object"] && (self.differs_by_property(other) || other.differs_by_property(self))
    }

    fn differs_by_value(&self, other: &Description<'a>) -> bool {
        let mine = self.parts.iter().find_map(|part| literals(part));
        let theirs = other.parts.iter().find_map(|part| literals(part));
        match (mine, theirs) {
            (Some(mine), Some(theirs)) => are_distinct(&mine, &theirs),
            _ => false,
        }
    }

    /// A property that `self` demands has a value that `other` forbids.
    fn differs_by_property(&self, other: &Description<'a>) -> bool {
        self.required().into_iter().any(|name| {
            let mine = self.property(name);
            let theirs = other.property(name);
            mine.iter()
                .any(|mine| theirs.iter().any(|theirs| mine.is_disjoint(theirs)))
                || other.forbids(name)
        })
    }

    fn required(&self) -> Vec<&'a str> {
        let lists = self.parts.iter().filter_map(|part| part.get("required"));
        lists
            .filter_map(Json::as_array)
            .flatten()
            .filter_map(Json::as_str)
            .collect()
    }

    fn property(&self, name: &str) -> Vec<Description<'a>> {
        let named = self.parts.iter().filter_map(|part| part.get("properties"));
        named
            .filter_map(|properties| properties.get(name))
            .map(|schema| Description::of(self.document, self.base, schema))
            .collect()
    }

    fn forbids(&self, name: &str) -> bool {
        self.parts.iter().any(|part| {
            let named = part
                .get("properties")
                .is_some_and(|properties| properties.get(name).is_some());
            let closed = part.get("additionalProperties") == Some(&Json::Bool(false));
            closed && !named && !part.contains_key("patternProperties")
        })
    }
}

fn named_types(value: &Json) -> BTreeSet<&str> {
    let names: Vec<&str> = match value {
        Json::String(name) => vec![name],
        Json::Array(names) => names.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    };
    let mut types: BTreeSet<&str> = names.into_iter().collect();
    if types.remove("number") {
        types.extend(["integer", "fraction"]);
    }
    types
}

fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(number) => match number.as_f64() {
            Some(value) if value.fract() != 0.0 => "fraction",
            _ => "integer",
        },
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn literals(keywords: &Map<String, Json>) -> Option<Vec<&Json>> {
    if let Some(value) = keywords.get("const") {
        return Some(vec![value]);
    }
    Some(keywords.get("enum")?.as_array()?.iter().collect())
}

/// Structured values and numbers have several spellings: only their types are compared.
fn are_distinct(first: &[&Json], second: &[&Json]) -> bool {
    first.iter().all(|a| {
        second.iter().all(|b| match (a, b) {
            (Json::Number(a), Json::Number(b)) => a.as_f64() != b.as_f64(),
            (Json::Array(_), Json::Array(_)) | (Json::Object(_), Json::Object(_)) => false,
            _ => a != b,
        })
    })
}

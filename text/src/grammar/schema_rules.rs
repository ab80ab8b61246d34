//! What becomes of each JSON Schema keyword; `docs/structured-output.md` has the table for users.

use serde_json::Value as Json;

/// How a keyword's value is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Passed on as it is.
    Plain,
    /// A schema.
    Schema,
    /// A schema, or an array of them in older drafts.
    SchemaOrList,
    /// An array of schemas.
    List,
    /// Schemas by name.
    Map,
    /// Schemas by regular expression.
    PatternMap,
    Pattern,
    /// A whole number of at least 0.
    Count,
    /// A number.
    Number,
    /// JSON that the text is to equal.
    Literal,
    Format,
    Reference,
    /// Says nothing about which texts are valid: taken out.
    Annotation,
    /// No keyword of any draft: says nothing either, but a `$ref` may lead into it.
    Unknown,
    /// Rewritten into other keywords, or refused where that is not possible.
    Rewritten,
    /// Refused by name unless the value asks for nothing.
    Refused,
}

/// Keywords of the drafts 4 to 2020-12.
const RULES: &[(&str, Rule)] = &[
    ("$anchor", Rule::Plain),
    ("$comment", Rule::Annotation),
    ("$defs", Rule::Map),
    ("$dynamicAnchor", Rule::Rewritten),
    ("$dynamicRef", Rule::Refused),
    ("$id", Rule::Plain),
    ("$recursiveAnchor", Rule::Annotation),
    ("$recursiveRef", Rule::Refused),
    ("$ref", Rule::Reference),
    ("$schema", Rule::Plain),
    ("$vocabulary", Rule::Annotation),
    ("additionalItems", Rule::Schema),
    ("additionalProperties", Rule::Schema),
    ("allOf", Rule::List),
    ("anyOf", Rule::List),
    ("const", Rule::Literal),
    ("contains", Rule::Refused),
    ("contentEncoding", Rule::Annotation),
    ("contentMediaType", Rule::Annotation),
    ("contentSchema", Rule::Annotation),
    ("default", Rule::Annotation),
    ("definitions", Rule::Map),
    ("dependencies", Rule::Rewritten),
    ("dependentRequired", Rule::Rewritten),
    ("dependentSchemas", Rule::Rewritten),
    ("deprecated", Rule::Annotation),
    ("description", Rule::Annotation),
    ("disallow", Rule::Refused),
    ("divisibleBy", Rule::Refused),
    ("else", Rule::Rewritten),
    ("enum", Rule::Literal),
    ("examples", Rule::Annotation),
    ("exclusiveMaximum", Rule::Number),
    ("exclusiveMinimum", Rule::Number),
    ("extends", Rule::Refused),
    ("format", Rule::Format),
    ("id", Rule::Plain),
    ("if", Rule::Rewritten),
    ("items", Rule::SchemaOrList),
    ("maxContains", Rule::Refused),
    ("maxItems", Rule::Count),
    ("maxLength", Rule::Count),
    ("maxProperties", Rule::Count),
    ("maximum", Rule::Number),
    ("minContains", Rule::Refused),
    ("minItems", Rule::Count),
    ("minLength", Rule::Count),
    ("minProperties", Rule::Count),
    ("minimum", Rule::Number),
    ("multipleOf", Rule::Number),
    ("not", Rule::Rewritten),
    ("oneOf", Rule::List),
    ("pattern", Rule::Pattern),
    ("patternProperties", Rule::PatternMap),
    ("prefixItems", Rule::List),
    ("properties", Rule::Map),
    ("propertyNames", Rule::Rewritten),
    ("readOnly", Rule::Annotation),
    ("required", Rule::Plain),
    ("then", Rule::Rewritten),
    ("title", Rule::Annotation),
    ("type", Rule::Plain),
    ("unevaluatedItems", Rule::Rewritten),
    ("unevaluatedProperties", Rule::Rewritten),
    ("uniqueItems", Rule::Refused),
    ("writeOnly", Rule::Annotation),
    // llguidance's own: it could switch its checks off.
    ("x-guidance", Rule::Refused),
];

/// The keyword's rule.
pub fn rule(keyword: &str) -> Rule {
    RULES
        .iter()
        .find(|(name, _)| *name == keyword)
        .map_or(Rule::Unknown, |(_, rule)| *rule)
}

/// Whether a refused keyword's value asks for nothing.
pub fn is_neutral(keyword: &str, value: &Json, siblings: &serde_json::Map<String, Json>) -> bool {
    match keyword {
        "uniqueItems" => *value == Json::Bool(false),
        "minContains" | "maxContains" => !siblings.contains_key("contains"),
        _ => false,
    }
}

/// `true` and `{}`.
pub fn allows_everything(schema: &Json) -> bool {
    match schema {
        Json::Bool(allowed) => *allowed,
        Json::Object(keywords) => keywords
            .keys()
            .all(|keyword| matches!(rule(keyword), Rule::Annotation | Rule::Unknown)),
        _ => false,
    }
}

/// Keywords that apply further schemas to the same value: they may evaluate properties or items that
/// the schema itself does not name.
pub const IN_PLACE_APPLICATORS: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "allOf",
    "anyOf",
    "dependentSchemas",
    "dependencies",
    "else",
    "if",
    "not",
    "oneOf",
    "then",
];

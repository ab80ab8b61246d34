//! Grammars that generated text has to follow, over llguidance.

pub mod constraint;
mod ending;
pub mod gbnf;
mod lark;
mod pattern;
mod schema;
mod schema_formats;
mod schema_rewrite;
mod schema_rules;
mod schema_text;
mod schema_unions;
mod thought;
pub mod vocabulary;

pub use constraint::{Constraint, ConstraintMatcher, Reasoning, Source};
pub use vocabulary::GrammarVocabulary;

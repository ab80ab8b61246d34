//! Grammars that generated text has to follow, over llguidance.

pub mod constraint;
mod ending;
pub mod gbnf;
mod lark;
mod masks;
mod pattern;
mod schema;
mod schema_formats;
mod schema_rewrite;
mod schema_rules;
mod schema_text;
mod schema_unions;
mod thought;
pub mod vocabulary;
mod word_trie;

pub use constraint::{parse, Constraint, ConstraintMatcher, Reasoning, Source};
pub use vocabulary::GrammarVocabulary;

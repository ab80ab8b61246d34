//! Where a text stands that begins with reasoning.

use std::sync::Arc;

use super::Reasoning;
use crate::error::TextError;
use crate::tokenizer::{SpecialTokens, TextTokenizer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Reasoning may be opened.
    Start,
    Open,
    /// It is over, or there is none.
    Over,
}

/// What opens and closes reasoning.
pub struct Marks {
    open: Vec<u8>,
    close: Vec<u8>,
    close_ids: Vec<u32>,
    tokenizer: Arc<TextTokenizer>,
}

impl Marks {
    pub fn new(tokenizer: Arc<TextTokenizer>, reasoning: &Reasoning) -> Result<Self, TextError> {
        Ok(Self {
            open: reasoning.open.clone().into_bytes(),
            close: reasoning.close.clone().into_bytes(),
            close_ids: tokenizer.encode(&reasoning.close, SpecialTokens::Recognise)?,
            tokenizer,
        })
    }
}

/// Follows the reasoning before a constrained text.
#[derive(Clone)]
pub struct Thought {
    /// `None`: the text has no reasoning.
    marks: Option<Arc<Marks>>,
    stage: Stage,
    /// What has come, as long as the reasoning is not over.
    text: Vec<u8>,
    ids: Vec<u32>,
}

impl Thought {
    pub fn new(marks: Option<Arc<Marks>>) -> Self {
        let mut thought = Self {
            marks,
            stage: Stage::Over,
            text: Vec::new(),
            ids: Vec::new(),
        };
        thought.stage = thought.first_stage();
        thought
    }

    fn first_stage(&self) -> Stage {
        match &self.marks {
            None => Stage::Over,
            Some(marks) if marks.open.is_empty() => Stage::Open,
            Some(_) => Stage::Start,
        }
    }

    pub fn commit(&mut self, id: u32) {
        let Some(marks) = &self.marks else {
            return;
        };
        self.ids.push(id);
        if self.stage == Stage::Over {
            return;
        }
        self.text.extend(marks.tokenizer.token_bytes(id));
        if self.stage == Stage::Start {
            if self.text.starts_with(&marks.open) {
                self.stage = Stage::Open;
                self.text.drain(..marks.open.len());
            } else if !marks.open.starts_with(&self.text) {
                self.stage = Stage::Over;
            }
        }
        let closed = |window: &[u8]| window == marks.close.as_slice();
        if self.stage == Stage::Open {
            if self.text.windows(marks.close.len().max(1)).any(closed) {
                self.stage = Stage::Over;
            } else {
                let kept = self.text.len().min(marks.close.len());
                self.text.drain(..self.text.len() - kept);
            }
        }
    }

    pub fn rollback(&mut self, count: usize) {
        let mut ids = std::mem::take(&mut self.ids);
        ids.truncate(ids.len().saturating_sub(count));
        self.text.clear();
        self.stage = self.first_stage();
        for id in ids {
            self.commit(id);
        }
    }

    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// The tokens that close the reasoning.
    pub fn close_ids(&self) -> &[u32] {
        match &self.marks {
            Some(marks) => &marks.close_ids,
            None => &[],
        }
    }
}

//! Streaming decode: text as soon as it is sure, never half a character.

use std::sync::Arc;

use crate::error::TextError;
use crate::tokenizer::TextTokenizer;

const REPLACEMENT: char = '\u{FFFD}';
/// After so many ids without a whole character they are taken as they are.
const LONGEST_PENDING: usize = 16;

/// Decodes a window of recent ids with every new one and sends what has been added to the text. The
/// window starts with ids already sent, since decoders treat the first piece of a text specially.
pub struct StreamDecoder {
    tokenizer: Arc<TextTokenizer>,
    skip_special: bool,
    window: Vec<u32>,
    /// How many ids of `window` are entirely sent.
    settled: usize,
    /// What the window decodes to, as far as it is sent.
    sent: String,
}

impl StreamDecoder {
    pub fn new(tokenizer: Arc<TextTokenizer>, skip_special: bool) -> Self {
        Self {
            tokenizer,
            skip_special,
            window: Vec::new(),
            settled: 0,
            sent: String::new(),
        }
    }

    /// The text that `id` completes. A trailing run of replacement characters may still become a
    /// character and is held back.
    pub fn push(&mut self, id: u32) -> Result<String, TextError> {
        if self.skip_special && self.tokenizer.is_special(id) {
            return Ok(String::new());
        }
        self.window.push(id);
        let decoded = self.tokenizer.decode(&self.window, self.skip_special)?;
        let stable = decoded.trim_end_matches(REPLACEMENT);
        if stable.len() == decoded.len() {
            return self.settle(&decoded);
        }
        if self.window.len() - self.settled > LONGEST_PENDING {
            return self.settle(&decoded);
        }
        match stable.strip_prefix(self.sent.as_str()) {
            Some(piece) => {
                let piece = piece.to_owned();
                self.sent.push_str(&piece);
                Ok(piece)
            }
            // A byte run that has become invalid decodes differently as a whole; what was sent
            // stays.
            None => Ok(String::new()),
        }
    }

    /// What is held back at the end of the text.
    pub fn finish(&mut self) -> Result<String, TextError> {
        if self.window.len() == self.settled {
            return Ok(String::new());
        }
        let decoded = self.tokenizer.decode(&self.window, self.skip_special)?;
        self.settle(&decoded)
    }

    /// Sends everything the window holds and moves it on.
    fn settle(&mut self, decoded: &str) -> Result<String, TextError> {
        let piece = match decoded.strip_prefix(self.sent.as_str()) {
            Some(piece) => piece.to_owned(),
            None => self
                .tokenizer
                .decode(&self.window[self.settled..], self.skip_special)?,
        };
        let recent = self.window[self.settled..].to_vec();
        let recent_text = self.tokenizer.decode(&recent, self.skip_special)?;
        if recent_text.is_empty() {
            self.sent = decoded.to_owned();
        } else {
            self.window = recent;
            self.sent = recent_text;
        }
        self.settled = self.window.len();
        Ok(piece)
    }
}

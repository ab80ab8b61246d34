//! The one error type of this library.

use std::fmt;

/// What went wrong, in one sentence.
#[derive(Debug)]
pub enum TextError {
    /// Input that cannot be used, or an engine error while rendering.
    Failed(String),
    /// A template called `raise_exception`, or a grammar is refused: why.
    Refused(String),
    /// The caller asked to stop.
    Cancelled,
}

impl TextError {
    pub fn failed(message: impl Into<String>) -> Self {
        TextError::Failed(message.into())
    }

    pub fn refused(message: impl Into<String>) -> Self {
        TextError::Refused(message.into())
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::Failed(message) | TextError::Refused(message) => {
                formatter.write_str(message)
            }
            TextError::Cancelled => formatter.write_str("cancelled"),
        }
    }
}

impl std::error::Error for TextError {}

impl From<Box<dyn std::error::Error + Send + Sync>> for TextError {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        TextError::Failed(error.to_string())
    }
}

impl From<serde_json::Error> for TextError {
    fn from(error: serde_json::Error) -> Self {
        TextError::Failed(error.to_string())
    }
}

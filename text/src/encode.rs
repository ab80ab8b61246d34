//! From text to ids: special tokens recognised or not, in spans or as a whole, with a way to stop.

use std::collections::HashSet;
use std::ops::Range;

use tokenizers::tokenizer::normalizer::Range as Part;
use tokenizers::tokenizer::pattern::Pattern;
use tokenizers::tokenizer::pre_tokenizer::PreTokenizedString;
use tokenizers::tokenizer::{NormalizedString, OffsetReferential, OffsetType};
use tokenizers::{
    AddedVocabulary, Model, ModelWrapper, Offsets, PreTokenizer, SplitDelimiterBehavior, Token,
    Tokenizer,
};

use crate::error::TextError;
use crate::long_words::{LongWords, LONG_WORD};
use crate::tokenizer::{SpecialTokens, TextTokenizer};

const SPACE: char = '\u{2581}';

/// Pieces of a text, those that are added tokens with their ids.
type Parts = Vec<(NormalizedString, Option<Vec<Token>>)>;

/// How a text is encoded.
pub struct EncodeRequest<'a> {
    pub special: SpecialTokens,
    /// Byte ranges, ascending, in which names of special tokens are plain text.
    pub literal: &'a [Range<usize>],
    /// Asked between the words; once it says so, encoding fails with `Cancelled`.
    pub cancelled: &'a dyn Fn() -> bool,
}

/// An added token found in a text.
struct Found {
    span: Range<usize>,
    id: u32,
    /// It is looked for behind the normalizer.
    normalized: bool,
}

impl TextTokenizer {
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, TextError> {
        self.encode_as(
            text,
            &EncodeRequest {
                special,
                literal: &[],
                cancelled: &|| false,
            },
        )
    }

    pub fn encode_as(&self, text: &str, request: &EncodeRequest) -> Result<Vec<u32>, TextError> {
        let check = || match (request.cancelled)() {
            true => Err(TextError::Cancelled),
            false => Ok(()),
        };
        check()?;
        let normalizer = self.inner.get_normalizer();
        let added = self.inner.get_added_vocabulary();
        let mut pieces = match request.special {
            SpecialTokens::Literal => self
                .plain_vocabulary
                .extract_and_normalize(normalizer, text),
            _ if request.literal.is_empty() => added.extract_and_normalize(normalizer, text),
            _ => self.extract_marked(text, request.literal)?,
        };
        check()?;
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        check()?;
        if let Some(cuts) = &self.safe_cuts {
            pieces.split(|_, piece| piece.split(cuts, SplitDelimiterBehavior::Isolated))?;
        }
        let literal = request.special == SpecialTokens::Literal || !request.literal.is_empty();
        self.tokenize(&mut pieces, literal, request.cancelled)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None)?;
        let add = request.special == SpecialTokens::Add;
        let encoding = self.inner.post_process(encoding, None, add)?;
        Ok(encoding.get_ids().to_vec())
    }

    fn tokenize(
        &self,
        pieces: &mut PreTokenizedString,
        literal: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), TextError> {
        let result = pieces.tokenize(|piece| {
            if cancelled() {
                return Err("cancelled".into());
            }
            let tokens = self.tokenize_word(piece.get(), cancelled)?;
            if literal && tokens.iter().any(|token| self.is_marker(token)) {
                self.spell_out(tokens)
            } else {
                Ok(tokens)
            }
        });
        match result {
            Err(_) if cancelled() => Err(TextError::Cancelled),
            result => Ok(result?),
        }
    }

    /// As the model does, but long words in less time.
    fn tokenize_word(
        &self,
        word: &str,
        cancelled: &dyn Fn() -> bool,
    ) -> tokenizers::Result<Vec<Token>> {
        let model = self.inner.get_model();
        if let (true, ModelWrapper::BPE(bpe)) = (word.len() > LONG_WORD, model) {
            let whole = bpe.ignore_merges && bpe.token_to_id(word).is_some();
            let long_words = self.long_words.get_or_init(|| LongWords::of(bpe));
            if let (false, Some(long_words)) = (whole, long_words) {
                if let Some(tokens) = long_words.tokenize(bpe, word, cancelled)? {
                    return Ok(tokens);
                }
            }
        }
        model.tokenize(word)
    }

    /// As the added vocabulary's own extraction, but special tokens in `literal` are passed over.
    fn extract_marked(
        &self,
        text: &str,
        literal: &[Range<usize>],
    ) -> Result<PreTokenizedString, TextError> {
        let added = self.inner.get_added_vocabulary();
        let overlaps = |span: &Range<usize>| {
            let next = literal.partition_point(|range| range.end <= span.start);
            literal
                .get(next)
                .is_some_and(|range| range.start < span.end)
        };
        let mut kept = self.added_tokens(added, text, 0);
        kept.retain(|found| self.is_special(found.id) && !overlaps(&found.span));
        let mut found = Vec::new();
        let mut start = 0;
        for special in kept {
            found.extend(self.added_tokens(
                &self.plain_vocabulary,
                &text[start..special.span.start],
                start,
            ));
            start = special.span.end;
            found.push(special);
        }
        found.extend(self.added_tokens(&self.plain_vocabulary, &text[start..], start));

        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, piece| Ok(self.cut_out(piece, &found, false)))?;
        if let Some(normalizer) = self.inner.get_normalizer() {
            use tokenizers::Normalizer;
            pieces.normalize(|piece| normalizer.normalize(piece))?;
        }
        pieces.split(|_, piece| Ok(self.cut_out(piece, &found, true)))?;
        Ok(pieces)
    }

    fn added_tokens(&self, vocabulary: &AddedVocabulary, text: &str, shift: usize) -> Vec<Found> {
        let extracted = vocabulary.extract_and_normalize(self.inner.get_normalizer(), text);
        let decoder = vocabulary.get_added_tokens_decoder();
        extracted
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .filter_map(|(_, (start, end), tokens)| {
                let id = tokens.as_ref()?.first()?.id;
                Some(Found {
                    span: start + shift..end + shift,
                    id,
                    normalized: decoder.get(&id).is_some_and(|token| token.normalized),
                })
            })
            .collect()
    }

    /// Cuts the tokens of one kind out of a piece; `found` is ascending.
    fn cut_out(&self, piece: NormalizedString, found: &[Found], normalized: bool) -> Parts {
        let (begin, end) = piece.offsets_original();
        let first = found.partition_point(|token| token.span.start < begin);
        let inside: Vec<&Found> = found[first..]
            .iter()
            .take_while(|token| token.span.end <= end)
            .filter(|token| token.normalized == normalized)
            .collect();
        if inside.is_empty() {
            return vec![(piece, None)];
        }
        let mut parts = Vec::new();
        self.cut_at(piece, &inside, &mut parts);
        parts
    }

    /// Cuts at the middle token first: a cut takes as long as the piece that it is made in.
    fn cut_at(&self, piece: NormalizedString, found: &[&Found], parts: &mut Parts) {
        let (before, after) = found.split_at(found.len() / 2);
        let Some((token, after)) = after.split_first() else {
            parts.push((piece, None));
            return;
        };
        let (begin, end) = piece.offsets_original();
        let part = |from: usize, to: usize| piece.slice(Part::Original(from - begin..to - begin));
        if let Some(left) = part(begin, token.span.start) {
            self.cut_at(left, before, parts);
        }
        if let Some(marked) = part(token.span.start, token.span.end) {
            let name = self.token_name(token.id).unwrap_or_default();
            let length = name.len();
            parts.push((marked, Some(vec![Token::new(token.id, name, (0, length))])));
        }
        if let Some(right) = part(token.span.end, end) {
            self.cut_at(right, after, parts);
        }
    }

    /// A special token that the model itself found in plain text.
    fn is_marker(&self, token: &Token) -> bool {
        self.is_special(token.id) && self.unknown_id != Some(token.id)
    }

    /// Replaces special tokens that a model found as ordinary pieces by those of their halves.
    fn spell_out(&self, tokens: Vec<Token>) -> tokenizers::Result<Vec<Token>> {
        let model = self.inner.get_model();
        let mut plain = Vec::with_capacity(tokens.len());
        for token in tokens {
            let first_length = token.value.chars().next().map_or(0, char::len_utf8);
            if !self.is_marker(&token) || first_length == token.value.len() {
                plain.push(token);
                continue;
            }
            let (first, rest) = token.value.split_at(first_length);
            plain.extend(self.spell_out(model.tokenize(first)?)?);
            plain.extend(self.spell_out(model.tokenize(rest)?)?);
        }
        Ok(plain)
    }
}

/// Where a text of a SentencePiece vocabulary can be cut without changing its tokens: before a space
/// mark that stands behind a character behind which no token has one. Without this a whole prompt
/// would be one word, merged in one go and never found in the model's cache.
pub struct SafeCuts {
    /// The characters that some token has before a space mark.
    before_space: HashSet<char>,
}

impl SafeCuts {
    /// `None` for other vocabularies.
    pub fn of(tokenizer: &Tokenizer) -> Option<Self> {
        let model = tokenizer.get_model();
        if !matches!(model, ModelWrapper::BPE(_) | ModelWrapper::Unigram(_)) {
            return None;
        }
        model.token_to_id(&SPACE.to_string())?;
        let mut before_space = HashSet::from([SPACE]);
        for token in model.get_vocab().keys() {
            let mut previous = None;
            for character in token.chars() {
                if character == SPACE {
                    before_space.extend(previous);
                }
                previous = Some(character);
            }
        }
        Some(Self { before_space })
    }
}

impl Pattern for &SafeCuts {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        let mut words = Vec::new();
        let mut start = 0;
        let mut previous = SPACE;
        for (index, character) in inside.char_indices() {
            if character == SPACE && !self.before_space.contains(&previous) {
                words.push(((start, index), false));
                start = index;
            }
            previous = character;
        }
        words.push(((start, inside.len()), false));
        Ok(words)
    }
}

//! Tokens from all over the reference fixtures' vocabularies, decoded, streamed and encoded again, beside
//! the `tokenizers` crate itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use espalier_text::stream::StreamDecoder;
use espalier_text::tokenizer::{SpecialTokens, TextTokenizer};
use tokenizers::Tokenizer;

const REPLACEMENT: char = '\u{FFFD}';
/// About so many tokens of each vocabulary are tried.
const MOST_TOKENS: usize = 2000;

/// `ESPALIER_SHARED`, else `shared` beside the sources. Nothing where the fixtures are not at hand.
fn families() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let shared = std::env::var_os("ESPALIER_SHARED").map_or(beside, PathBuf::from);
    let Ok(folders) = std::fs::read_dir(shared.join("fixtures/text/tokenizers")) else {
        return Vec::new();
    };
    folders.map(|folder| folder.unwrap().path()).collect()
}

fn unpacked(archive: &Path) -> Vec<u8> {
    let output = Command::new("xz").arg("-dc").arg(archive).output().unwrap();
    assert!(output.status.success(), "{}", archive.display());
    output.stdout
}

fn streamed(tokenizer: &Arc<TextTokenizer>, ids: &[u32]) -> String {
    let mut stream = StreamDecoder::new(Arc::clone(tokenizer), false);
    let mut text: String = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
    text += &stream.finish().unwrap();
    text
}

fn check_token(name: &str, ours: &Arc<TextTokenizer>, theirs: &Tokenizer, id: u32) {
    let text = theirs.decode(&[id], false).unwrap();
    assert_eq!(ours.decode(&[id], false).unwrap(), text, "{name} {id}");
    assert_eq!(streamed(ours, &[id]), text, "{name} {id}");
    for text in [text.as_str(), &format!("a{text}b {text}")] {
        let found = ours.encode(text, SpecialTokens::Recognise).unwrap();
        let expected = theirs.encode_fast(text, false).unwrap();
        assert_eq!(found, expected.get_ids(), "{name} {id}: {text:?}");
    }
}

/// Streams of ids as no text gives them, 24 at a time.
fn check_streams(name: &str, ours: &Arc<TextTokenizer>, theirs: &Tokenizer, ids: &[u32]) {
    for start in 0..500 {
        let chosen: Vec<u32> = (0..24)
            .map(|step| ids[(start * 7919 + step * (start + 104_729)) % ids.len()])
            .collect();
        let text = theirs.decode(&chosen, false).unwrap();
        // Broken characters one after the other are not sent as they are counted in the end.
        if !text.contains(REPLACEMENT) {
            assert_eq!(streamed(ours, &chosen), text, "{name}: {chosen:?}");
        }
    }
}

fn check_family(family: &Path) {
    let name = family.file_name().unwrap().to_string_lossy().into_owned();
    let json = unpacked(&family.join("tokenizer.json.xz"));
    let ours = Arc::new(TextTokenizer::from_json(&json).unwrap());
    let mut theirs = Tokenizer::from_bytes(&json).unwrap();
    theirs.with_truncation(None).unwrap();
    theirs.with_padding(None);
    let ids: Vec<u32> = (0..ours.size())
        .filter(|id| theirs.id_to_token(*id).is_some())
        .collect();
    assert_eq!(ids.len(), theirs.get_vocab_size(true), "{name}");
    let step = ids.len().div_ceil(MOST_TOKENS);
    for id in ids.iter().step_by(step) {
        check_token(&name, &ours, &theirs, *id);
    }
    // A WordPiece decoder cleans up across words.
    if name != "bert_minilm" {
        check_streams(&name, &ours, &theirs, &ids);
    }
}

#[test]
fn tokens_are_decoded_streamed_and_encoded_as_the_tokenizers_crate_does() {
    let families = families();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for first in 0..threads {
            let share = families.iter().skip(first).step_by(threads);
            scope.spawn(move || share.for_each(|family| check_family(family)));
        }
    });
}

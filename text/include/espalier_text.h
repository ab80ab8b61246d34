/* The C interface of the text library: tokenizers, chat templates and grammars.
 *
 * Functions that can fail return null or a status other than ESPALIER_TEXT_OK and leave a message
 * for espalier_text_last_error on the calling thread. Nothing here throws or aborts. Objects are
 * immutable unless said otherwise and may be used by several threads at once. Text is UTF-8.
 * Pointers taken are only read during the call; what the library returns is freed by its own
 * functions.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  ESPALIER_TEXT_OK = 0,
  ESPALIER_TEXT_FAILED = 1,
  ESPALIER_TEXT_REFUSED = 2,   /* a template raised an exception, or a grammar cannot be used */
  ESPALIER_TEXT_CANCELLED = 3, /* the caller asked to stop */
} espalier_text_status;

typedef enum {
  ESPALIER_TEXT_RECOGNISE = 0, /* special tokens in the text become their ids */
  ESPALIER_TEXT_ADD = 1,       /* and the tokenizer adds its own around it */
  ESPALIER_TEXT_LITERAL = 2,   /* all text is plain text */
} espalier_text_special;

/* Borrowed bytes; data may be null when size is 0. */
typedef struct {
  const uint8_t* data;
  size_t size;
} espalier_text_bytes;

/* Owned by the library; freed with espalier_text_buffer_free. */
typedef struct {
  uint8_t* data;
  size_t size;
} espalier_text_buffer;

/* Owned by the library; freed with espalier_text_ids_free. */
typedef struct {
  uint32_t* data;
  size_t size;
} espalier_text_ids;

typedef struct espalier_text_tokenizer espalier_text_tokenizer;
typedef struct espalier_text_stream espalier_text_stream;
typedef struct espalier_text_template espalier_text_template;
typedef struct espalier_text_grammar_vocabulary espalier_text_grammar_vocabulary;
typedef struct espalier_text_constraint espalier_text_constraint;
typedef struct espalier_text_matcher espalier_text_matcher;

/* The last failure's message on this thread; valid until the next call on it. */
espalier_text_bytes espalier_text_last_error(void);

void espalier_text_buffer_free(espalier_text_buffer buffer);
void espalier_text_ids_free(espalier_text_ids ids);

/* The keys below tokenizer.ggml. in a GGUF file. Arrays that the file lacks are empty, ids and
 * flags it lacks are negative. */
typedef struct {
  espalier_text_bytes model;
  espalier_text_bytes pre;
  const espalier_text_bytes* tokens;
  size_t token_count;
  const int32_t* types;
  size_t type_count;
  const float* scores;
  size_t score_count;
  const espalier_text_bytes* merges;
  size_t merge_count;
  espalier_text_bytes precompiled_charsmap;
  int64_t bos, eos, unknown, separator;
  int32_t add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
} espalier_text_gguf_vocabulary;

/* Reads the content of a tokenizer.json. */
espalier_text_tokenizer* espalier_text_tokenizer_from_json(espalier_text_bytes json);
/* Reads tokenizer.model, tekken.json or a file of tiktoken ranks, whose name says which, with the
 * content of tokenizer_config.json, which may be empty. */
espalier_text_tokenizer* espalier_text_tokenizer_from_model_file(espalier_text_bytes name,
                                                                 espalier_text_bytes content,
                                                                 espalier_text_bytes config);
espalier_text_tokenizer* espalier_text_tokenizer_from_gguf(
    const espalier_text_gguf_vocabulary* vocabulary);
void espalier_text_tokenizer_free(espalier_text_tokenizer* tokenizer);

/* Bytes [begin, end) of a text. */
typedef struct {
  size_t begin;
  size_t end;
} espalier_text_span;

typedef struct {
  espalier_text_special special;
  const espalier_text_span* literal; /* ascending; names of special tokens in them are plain text */
  size_t literal_count;
  int (*cancelled)(const void* context); /* asked between words; null: never */
  const void* context;
} espalier_text_encode_request;

/* Text that is not valid UTF-8 has replacement characters in place of what is not. */
espalier_text_status espalier_text_encode(const espalier_text_tokenizer* tokenizer,
                                          espalier_text_bytes text,
                                          const espalier_text_encode_request* request,
                                          espalier_text_ids* ids);
espalier_text_status espalier_text_decode(const espalier_text_tokenizer* tokenizer,
                                          const uint32_t* ids, size_t count, int skip_special,
                                          espalier_text_buffer* text);
/* The bytes a token adds to a text; none for an unknown id. */
espalier_text_status espalier_text_token_bytes(const espalier_text_tokenizer* tokenizer,
                                               uint32_t id, espalier_text_buffer* bytes);
/* The token's entry in the vocabulary; empty for an unknown id. */
espalier_text_status espalier_text_token_name(const espalier_text_tokenizer* tokenizer, uint32_t id,
                                              espalier_text_buffer* name);
/* Negative for a name without an id. */
int64_t espalier_text_token_id(const espalier_text_tokenizer* tokenizer, espalier_text_bytes name);
int espalier_text_is_special(const espalier_text_tokenizer* tokenizer, uint32_t id);
/* One more than the highest id. */
uint32_t espalier_text_vocabulary_size(const espalier_text_tokenizer* tokenizer);

/* The content of a tokenizer.json that gives this tokenizer. */
espalier_text_status espalier_text_tokenizer_json(const espalier_text_tokenizer* tokenizer,
                                                  espalier_text_buffer* json);

/* A decoder that takes ids one by one; for one thread at a time. It keeps the tokenizer alive. */
espalier_text_stream* espalier_text_stream_new(const espalier_text_tokenizer* tokenizer,
                                               int skip_special);
void espalier_text_stream_free(espalier_text_stream* stream);
espalier_text_status espalier_text_stream_push(espalier_text_stream* stream, uint32_t id,
                                               espalier_text_buffer* text);
espalier_text_status espalier_text_stream_finish(espalier_text_stream* stream,
                                                 espalier_text_buffer* text);

/* JSON texts; an empty one is as null. */
typedef struct {
  espalier_text_bytes messages;
  espalier_text_bytes tools;
  espalier_text_bytes documents;
  espalier_text_bytes kwargs;
  espalier_text_bytes special_tokens;
  int add_generation_prompt;
  int continue_final_message;
  int64_t local_seconds; /* since 1970-01-01 00:00 of the local clock */
} espalier_text_render_input;

espalier_text_template* espalier_text_template_compile(espalier_text_bytes source);
void espalier_text_template_free(espalier_text_template* chat_template);
espalier_text_status espalier_text_template_render(const espalier_text_template* chat_template,
                                                   const espalier_text_render_input* input,
                                                   espalier_text_buffer* text);

/* What grammars are compiled for: the tokenizer's bytes for ids below `width`, the number of the
 * model's logits, and the tokens that end a text. */
espalier_text_grammar_vocabulary* espalier_text_grammar_vocabulary_new(
    const espalier_text_tokenizer* tokenizer, uint32_t width, const uint32_t* end_tokens,
    size_t end_token_count);
void espalier_text_grammar_vocabulary_free(espalier_text_grammar_vocabulary* vocabulary);
/* How a Lark grammar refers to a piece of markup: a special token's id, else a string. */
espalier_text_status espalier_text_grammar_reference(
    const espalier_text_grammar_vocabulary* vocabulary, espalier_text_bytes text,
    espalier_text_buffer* reference);

typedef struct {
  int source; /* 0 JSON schema, 1 regular expression, 2 Lark, 3 GBNF, 4 JSON array of choices */
  espalier_text_bytes text;
  int follows_reasoning;              /* free text goes before, up to reasoning_close */
  espalier_text_bytes reasoning_open; /* empty: the prompt has opened it */
  espalier_text_bytes reasoning_close;
  espalier_text_bytes text_close; /* ends free text without quotes in the grammar, or empty */
} espalier_text_grammar;

/* ESPALIER_TEXT_REFUSED when the grammar is to blame. Keeps the vocabulary alive. */
espalier_text_status espalier_text_constraint_compile(
    const espalier_text_grammar_vocabulary* vocabulary, const espalier_text_grammar* grammar,
    espalier_text_constraint** constraint);
void espalier_text_constraint_free(espalier_text_constraint* constraint);

/* The state of one text that follows a constraint; for one thread at a time. */
espalier_text_matcher* espalier_text_matcher_new(const espalier_text_constraint* constraint);
void espalier_text_matcher_free(espalier_text_matcher* matcher);
/* At most `tokens` may still come: from now on masks see to it that the text is complete by then,
 * if it can be. */
espalier_text_status espalier_text_matcher_limit(espalier_text_matcher* matcher, size_t tokens);
/* `word_count` is a 32nd of the vocabulary's width, rounded up; bit i says whether token i may come
 * next. */
espalier_text_status espalier_text_matcher_mask(espalier_text_matcher* matcher, uint32_t* words,
                                                size_t word_count);
espalier_text_status espalier_text_matcher_commit(espalier_text_matcher* matcher, uint32_t id);
/* Takes the last tokens back. */
espalier_text_status espalier_text_matcher_rollback(espalier_text_matcher* matcher, size_t count);
/* Whether the text is complete, so that nothing but an end token can follow. */
int espalier_text_matcher_stopped(const espalier_text_matcher* matcher);
/* Whether the text may end here. */
espalier_text_status espalier_text_matcher_accepting(espalier_text_matcher* matcher,
                                                     int* accepting);

#ifdef __cplusplus
}
#endif

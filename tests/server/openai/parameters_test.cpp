#include "server/openai/parameters.h"

#include <cmath>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "server/openai/text_parameters.h"

namespace espalier::server::openai {
namespace {

const generation::SamplingParameters defaults = {.temperature = 0.5F};

Json chat_body(const Json& more) {
  Json body = Json::parse(R"({"messages":[{"role":"user","content":"Hi"}]})");
  body.update(more);
  return body;
}

ChatRequest chat(const char* more) { return parse_chat(chat_body(Json::parse(more)), defaults); }

CompletionRequest completion(const char* more) {
  Json body = Json::parse(R"({"prompt":"Hi"})");
  body.update(Json::parse(more));
  return parse_completion(body, defaults);
}

template <typename Call>
std::string refused_parameter(Call call) {
  try {
    call();
  } catch (const base::RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_FALSE(error.code().empty());
    EXPECT_NE(std::string(error.what()).find(error.param()), std::string::npos);
    return error.param();
  }
  return "nothing";
}

TEST(ParseChat, StartsFromTheModelsDefaults) {
  const ChatRequest request = chat("{}");
  EXPECT_EQ(request.generation.sampling.temperature, 0.5F);
  EXPECT_FALSE(request.generation.max_tokens);
  EXPECT_FALSE(request.generation.seed);
  EXPECT_EQ(request.generation.logprobs, -1);
  EXPECT_EQ(request.generation.choices, 1);
  EXPECT_FALSE(request.streaming.stream);
  EXPECT_TRUE(request.chat.add_generation_prompt);
}

TEST(ParseChat, MapsEveryParameter) {
  const ChatRequest request = chat(R"({"temperature":0, "top_p":0.9, "min_p":0.05, "top_k":40,
      "presence_penalty":0.1, "frequency_penalty":0.2, "repetition_penalty":1.1, "seed":7, "n":2,
      "max_completion_tokens":9, "stop":["a","b"], "ignore_eos":true, "logprobs":true,
      "top_logprobs":3, "stream":true, "stream_options":{"include_usage":true}, "model":"local",
      "logit_bias":{"5":-100, "6":2.5}, "reasoning_effort":"low",
      "chat_template_kwargs":{"x":1}})");
  const auto& sampling = request.generation.sampling;
  EXPECT_EQ(sampling.temperature, 0.0F);
  EXPECT_EQ(sampling.top_p, 0.9F);
  EXPECT_EQ(sampling.min_p, 0.05F);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.presence_penalty, 0.1F);
  EXPECT_EQ(sampling.frequency_penalty, 0.2F);
  EXPECT_EQ(sampling.repetition_penalty, 1.1F);
  EXPECT_EQ(sampling.logit_bias.at(5), -100.0F);
  EXPECT_EQ(sampling.logit_bias.at(6), 2.5F);
  EXPECT_EQ(request.generation.seed, 7U);
  EXPECT_EQ(request.generation.choices, 2);
  EXPECT_EQ(request.generation.max_tokens, 9);
  EXPECT_EQ(request.generation.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.generation.ignore_end);
  EXPECT_EQ(request.generation.logprobs, 3);
  EXPECT_TRUE(request.streaming.stream);
  EXPECT_TRUE(request.streaming.include_usage);
  EXPECT_EQ(request.generation.model, "local");
  EXPECT_EQ(request.chat.template_variables, Json::parse(R"({"reasoning_effort":"low","x":1})"));
}

TEST(ParseChat, TakesWhatAsksForNothing) {
  EXPECT_NO_THROW(chat(R"({"store":false, "tools":[], "tool_choice":"none", "user":"me",
      "metadata":{"a":"b"}, "response_format":{"type":"text"}, "parallel_tool_calls":true,
      "service_tier":"auto", "mirostat":0, "modalities":["text"], "temperature":null})"));
}

TEST(ParseChat, ReadsTools) {
  const ChatRequest request = chat(R"({"tools":[{"type":"function","function":{"name":"f",
      "parameters":{"type":"object"},"strict":true}}],"parallel_tool_calls":false,
      "tool_choice":{"type":"function","function":{"name":"f"}}})");
  EXPECT_EQ(request.chat.tools.tools, Json::parse(R"([{"type":"function","function":{"name":"f",
                             "parameters":{"type":"object"}}}])"));
  EXPECT_EQ(request.chat.tools.choice, protocol::ToolChoice::required);
  EXPECT_EQ(request.chat.tools.only, "f");
  EXPECT_FALSE(request.chat.tools.parallel);
}

TEST(ParseChat, ReadsWhatTheTextHasToFollow) {
  using grammar::Notation;
  struct Case {
    const char* parameters;
    Notation notation;
    const char* text;
    const char* name;
  };
  const std::vector<Case> cases = {
      {R"({"response_format":{"type":"json_object"}})", Notation::json_schema,
       R"({"type":"object"})", "response_format"},
      {R"({"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,
          "schema":{"type":"string"}}}})",
       Notation::json_schema, R"({"type":"string"})", "response_format.json_schema.schema"},
      {R"({"guided_json":"{\"type\":\"null\"}"})", Notation::json_schema, R"({"type":"null"})",
       "guided_json"},
      {R"({"guided_regex":"a+"})", Notation::regex, "a+", "guided_regex"},
      {R"({"guided_choice":["a","b"]})", Notation::choice, R"(["a","b"])", "guided_choice"},
      {R"({"grammar":"root ::= \"a\""})", Notation::gbnf, R"(root ::= "a")", "grammar"},
      {R"({"guided_grammar":"start: \"a\""})", Notation::lark, R"(start: "a")", "guided_grammar"},
      {R"({"structured_outputs":{"regex":"b"}})", Notation::regex, "b", "structured_outputs.regex"},
  };
  for (const Case& expected : cases) {
    const auto found = chat(expected.parameters).generation.constraint;
    ASSERT_TRUE(found) << expected.parameters;
    EXPECT_EQ(found->grammar.notation, expected.notation);
    EXPECT_EQ(found->grammar.text, expected.text);
    EXPECT_EQ(found->parameter, expected.name);
  }
}

TEST(ParseChat, RefusesByName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"tools":[{"type":"function"}]})", "tools[0]"},
      {R"({"tools":[{"type":"web_search"}]})", "tools[0]"},
      {R"({"tools":[{"type":"function","function":{"description":"x"}}]})", "tools[0].function"},
      {R"({"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"perhaps"})",
       "tool_choice"},
      {R"({"tools":[{"type":"function","function":{"name":"f"}}],
           "tool_choice":{"type":"function","function":{"name":"g"}}})",
       "tool_choice"},
      {R"({"tool_choice":"required"})", "tool_choice"},
      {R"({"store":true})", "store"},
      {R"({"response_format":{"type":"xml"}})", "response_format.type"},
      {R"({"response_format":{"type":"json_schema"}})", "response_format"},
      {R"({"response_format":{"type":"json_schema","json_schema":{}}})",
       "response_format.json_schema"},
      {R"({"response_format":{"type":"text","schema":{}}})", "response_format.schema"},
      {R"({"response_format":{"type":"json_object"}, "guided_regex":"a"})", "guided_regex"},
      {R"({"structured_outputs":{"structural_tag":"x"}})", "structured_outputs.structural_tag"},
      {R"({"guided_choice":["a",1]})", "guided_choice[1]"},
      {R"({"grammar_lazy":true})", "grammar_lazy"},
      {R"({"no_such_thing":1})", "no_such_thing"},
      {R"({"temperature":"hot"})", "temperature"},
      {R"({"n":0})", "n"},
      {R"({"n":129})", "n"},
      {R"({"stop":[1]})", "stop[0]"},
      {R"({"stop":""})", "stop"},
      {R"({"stream":"yes"})", "stream"},
      {R"({"stream_options":{"include_usage":true}})", "stream_options"},
      {R"({"stream":true,"stream_options":{"speed":1}})", "stream_options.speed"},
      {R"({"top_logprobs":3})", "top_logprobs"},
      {R"({"logprobs":true,"top_logprobs":21})", "top_logprobs"},
      {R"({"logprobs":1})", "logprobs"},
      {R"({"max_tokens":0})", "max_tokens"},
      {R"({"max_tokens":5,"max_completion_tokens":6})", "max_completion_tokens"},
      {R"({"logit_bias":{"x":1}})", "logit_bias.x"},
      {R"({"logit_bias":{"1":"y"}})", "logit_bias.1"},
      {R"({"seed":1.5})", "seed"},
      {R"({"seed":18446744073709551616})", "seed"},
      {R"({"typical_p":0.5})", "typical_p"},
      {R"({"grammar":["root ::= x"]})", "grammar"},
      {R"({"model":5})", "model"},
      {R"({"messages":"Hi"})", "messages"},
      {R"({"chat_template_kwargs":[]})", "chat_template_kwargs"},
  };
  for (const auto& [more, name] : cases) {
    EXPECT_EQ(refused_parameter([&] { chat(more); }), name) << more;
  }
  EXPECT_EQ(refused_parameter([] { parse_chat(Json::object(), defaults); }), "messages");
}

TEST(ParseChat, SeedsOfEverySize) {
  EXPECT_EQ(chat(R"({"seed":18446744073709551615})").generation.seed,
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_FALSE(chat(R"({"seed":-1})").generation.seed);
  EXPECT_EQ(chat(R"({"seed":-2})").generation.seed, static_cast<std::uint64_t>(-2));
}

TEST(ParseChat, ABiasOfFalseBansTheToken) {
  EXPECT_TRUE(std::isinf(chat(R"({"logit_bias":[[5,false]]})").generation.sampling.logit_bias[5]));
}

TEST(ParseCompletion, TakesEveryFormOfPrompt) {
  using Ids = std::vector<tokenizer::TokenId>;
  EXPECT_EQ(completion("{}").prompts, (std::vector<Prompt>{"Hi"}));
  EXPECT_EQ(completion(R"({"prompt":["a","b"]})").prompts, (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(completion(R"({"prompt":[1,2]})").prompts, (std::vector<Prompt>{Ids{1, 2}}));
  EXPECT_EQ(completion(R"({"prompt":[[1],[2]]})").prompts, (std::vector<Prompt>{Ids{1}, Ids{2}}));
}

TEST(ParseCompletion, RefusesByName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"prompt":[]})", "prompt"},         {R"({"prompt":7})", "prompt"},
      {R"({"prompt":[1,"a"]})", "prompt[1]"}, {R"({"prompt":[[-1]]})", "prompt[0][0]"},
      {R"({"suffix":"x"})", "suffix"},        {R"({"best_of":3})", "best_of"},
      {R"({"logprobs":true})", "logprobs"},   {R"({"logprobs":1,"echo":true})", "echo"},
      {R"({"messages":[]})", "messages"},
  };
  for (const auto& [more, name] : cases) {
    EXPECT_EQ(refused_parameter([&] { completion(more); }), name) << more;
  }
}

TEST(ParseTokenize, ReadsLlamaServersNames) {
  const TokenizeRequest request = parse_tokenize(Json::parse(
      R"({"content":"x","add_special":true,"parse_special":false,"with_pieces":true})"));
  EXPECT_EQ(request.content, "x");
  EXPECT_TRUE(request.add_special);
  EXPECT_FALSE(request.parse_special);
  EXPECT_TRUE(request.with_pieces);
  EXPECT_EQ(refused_parameter([] { parse_tokenize(Json::object()); }), "content");
  EXPECT_EQ(refused_parameter([] { parse_detokenize(Json{{"tokens", {1, "2"}}}); }), "tokens[1]");
}

/// The parameters of OpenAI's API reference for `POST /chat/completions` and `POST /completions`.
const std::set<std::string> chat_reference = {"messages",
                                              "model",
                                              "audio",
                                              "frequency_penalty",
                                              "function_call",
                                              "functions",
                                              "logit_bias",
                                              "logprobs",
                                              "max_completion_tokens",
                                              "max_tokens",
                                              "metadata",
                                              "modalities",
                                              "moderation",
                                              "n",
                                              "parallel_tool_calls",
                                              "prediction",
                                              "presence_penalty",
                                              "prompt_cache_key",
                                              "prompt_cache_retention",
                                              "reasoning_effort",
                                              "response_format",
                                              "safety_identifier",
                                              "seed",
                                              "service_tier",
                                              "stop",
                                              "store",
                                              "stream",
                                              "stream_options",
                                              "temperature",
                                              "tool_choice",
                                              "tools",
                                              "top_logprobs",
                                              "top_p",
                                              "user",
                                              "verbosity",
                                              "web_search_options"};
const std::set<std::string> completion_reference = {"model",
                                                    "prompt",
                                                    "best_of",
                                                    "echo",
                                                    "frequency_penalty",
                                                    "logit_bias",
                                                    "logprobs",
                                                    "max_tokens",
                                                    "n",
                                                    "presence_penalty",
                                                    "seed",
                                                    "stop",
                                                    "stream",
                                                    "stream_options",
                                                    "suffix",
                                                    "temperature",
                                                    "top_p",
                                                    "user"};

TEST(ListParameters, HasEveryParameterOfTheDialectOnce) {
  std::set<std::pair<std::string, std::string>> listed;
  for (const auto& row : list_parameters()) {
    EXPECT_TRUE(listed.emplace(row.endpoint, row.name).second) << row.endpoint << row.name;
    EXPECT_FALSE(row.note.empty()) << row.name;
  }
  for (const auto& name : chat_reference) {
    EXPECT_TRUE(listed.contains({"/v1/chat/completions", name})) << name;
  }
  for (const auto& name : completion_reference) {
    EXPECT_TRUE(listed.contains({"/v1/completions", name})) << name;
  }
}

TEST(ListParameters, EveryRefusedParameterIsRefused) {
  for (const auto& row : list_parameters()) {
    if (row.endpoint != "/v1/chat/completions" || row.handling != protocol::Handling::refused) {
      continue;
    }
    const Json more = {{row.name, "a value that no parameter takes"}};
    EXPECT_EQ(refused_parameter([&] { parse_chat(chat_body(more), defaults); }), row.name);
  }
}

TEST(ListParameters, NoMappedParameterTakesAnyType) {
  for (const auto& row : list_parameters()) {
    if (row.endpoint != "/v1/chat/completions" || row.handling != protocol::Handling::mapped) {
      continue;
    }
    // No mapped parameter is an array of arrays of booleans.
    const Json more = {{row.name, Json::array({Json::array({true})})}};
    EXPECT_NE(refused_parameter([&] { parse_chat(chat_body(more), defaults); }), "nothing")
        << row.name;
  }
}

}  // namespace
}  // namespace espalier::server::openai

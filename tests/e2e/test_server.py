"""The server as clients meet it: the real openai client, and sockets for what no client sends."""

import json
import random
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import openai
import pytest

MESSAGES = [{"role": "user", "content": "Name three colours of the rainbow."}]
GREEDY = {"temperature": 0, "max_tokens": 24}
WAIT_LIMIT_S = 60


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0)


def address(server) -> tuple[str, int]:
    parts = urlsplit(server.base_url)
    return parts.hostname, parts.port


def metric(server, name: str) -> float:
    text = httpx.get(server.base_url + "/metrics").text
    return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])


def wait_until(condition, what: str):
    deadline = time.monotonic() + WAIT_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


def post(server, path: str, body, **options) -> httpx.Response:
    content = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return httpx.post(server.base_url + path, content=content, timeout=WAIT_LIMIT_S, **options)


def raw_exchange(server, request: bytes) -> bytes:
    """What the server answers to these bytes until it closes or stays silent."""
    with socket.create_connection(address(server), timeout=5) as connection:
        answer = b""
        try:
            connection.sendall(request)
            while data := connection.recv(65536):
                answer += data
        except OSError:
            pass
        return answer


def chat_request(more: dict) -> bytes:
    body = json.dumps({"messages": MESSAGES, **more}).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


# Answers


def test_chat_whole_and_streamed_are_the_same(client):
    whole = client.chat.completions.create(model="local", messages=MESSAGES, **GREEDY)
    assert whole.object == "chat.completion"
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].message.content
    chunks = list(client.chat.completions.create(
        model="local", messages=MESSAGES, stream=True, stream_options={"include_usage": True},
        **GREEDY))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason
            ] == [whole.choices[0].finish_reason]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage


def test_usage_counts_tokens(server, client):
    answer = client.chat.completions.create(model="local", messages=MESSAGES, temperature=0,
                                            max_tokens=5)
    prompt = post(server, "/apply-template", {"messages": MESSAGES}).json()["prompt"]
    tokens = post(server, "/tokenize", {"content": prompt}).json()["tokens"]
    assert answer.usage.prompt_tokens == len(tokens)
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == len(tokens) + 5
    assert answer.choices[0].finish_reason == "length"


def test_completion_whole_and_streamed_are_the_same(client):
    arguments = {"model": "local", "prompt": "The capital of France is", **GREEDY}
    whole = client.completions.create(**arguments)
    assert whole.object == "text_completion"
    assert whole.choices[0].text.startswith(" Paris")
    streamed = "".join(chunk.choices[0].text
                       for chunk in client.completions.create(stream=True, **arguments))
    assert streamed == whole.choices[0].text


def test_prompts_of_every_form_give_the_same(server, client):
    text = "The capital of France is"
    ids = post(server, "/tokenize", {"content": text, "add_special": True}).json()["tokens"]
    expected = client.completions.create(model="local", prompt=text, **GREEDY).choices[0].text
    for prompt in ([text, text], ids, [ids, ids]):
        answer = client.completions.create(model="local", prompt=prompt, **GREEDY)
        assert [choice.text for choice in answer.choices] == [expected] * len(answer.choices)
    assert [choice.index for choice in answer.choices] == [0, 1]


def test_echo_puts_the_prompt_first(client):
    arguments = {"model": "local", "prompt": "One, two,", **GREEDY}
    plain = client.completions.create(**arguments).choices[0].text
    assert client.completions.create(echo=True, **arguments).choices[0].text == "One, two," + plain


def test_choices_differ_and_a_seed_settles_them(client):
    def sample(**more):
        answer = client.chat.completions.create(model="local", messages=MESSAGES, n=3,
                                                temperature=1, seed=5, max_tokens=24, **more)
        return answer

    first, second = sample(), sample()
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert len(set(texts)) > 1
    assert texts == [choice.message.content for choice in second.choices]
    streamed = ["", "", ""]
    for chunk in sample(stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts
    assert first.usage.completion_tokens <= 3 * 24


def test_chat_logprobs(client):
    arguments = {"model": "local", "messages": MESSAGES, "logprobs": True, "top_logprobs": 3,
                 **GREEDY}
    choice = client.chat.completions.create(**arguments).choices[0]
    tokens = choice.logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == choice.message.content
    for token in tokens:
        assert len(token.top_logprobs) == 3
        assert token.logprob == token.top_logprobs[0].logprob <= 0
        assert token.token == token.top_logprobs[0].token
    streamed = []
    for chunk in client.chat.completions.create(stream=True, **arguments):
        if chunk.choices and chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert streamed == tokens


def test_completion_logprobs(client):
    choice = client.completions.create(model="local", prompt="The capital of France is",
                                       logprobs=2, **GREEDY).choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset[:2] == [0, len(choice.logprobs.tokens[0])]
    assert all(len(top) == 2 for top in choice.logprobs.top_logprobs)


def test_stop_strings_end_the_text(client):
    arguments = {"model": "local", "prompt": "1, 2, 3, 4,", "temperature": 0, "max_tokens": 32}
    plain = client.completions.create(**arguments).choices[0].text
    assert "8" in plain
    for stop in ("8", ["8"], ["no such text", "8, 9", "8"]):
        choice = client.completions.create(stop=stop, **arguments).choices[0]
        assert choice.text == plain[:plain.index("8")]
        assert choice.finish_reason == "stop"
    streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(
        stop="8, 9", stream=True, **arguments))
    assert streamed == plain[:plain.index("8, 9")]


def test_logit_bias_bans_a_token(server, client):
    token = post(server, "/tokenize", {"content": " Paris"}).json()["tokens"][0]
    text = client.completions.create(model="local", prompt="The capital of France is",
                                     logit_bias={str(token): -100}, **GREEDY).choices[0].text
    assert not text.startswith(" Paris")


def test_what_unknown_clients_send(client):
    answer = client.chat.completions.create(
        model="default", store=False, tools=[], user="me", reasoning_effort="low",
        max_completion_tokens=4, temperature=0,
        messages=[{"role": "developer", "content": "Be brief."},
                  {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                  {"role": "assistant", "content": None, "tool_calls": [
                      {"id": "a", "type": "function", "function": {"name": "f",
                                                                   "arguments": "{\"a\":"}}]},
                  {"role": "tool", "tool_call_id": "a", "content": "1"},
                  {"role": "user", "content": "And?"}])
    assert answer.choices[0].finish_reason in ("stop", "length")


def test_special_tokens_in_messages_are_text(server):
    body = {"messages": [{"role": "user", "content": "a<|im_end|>b"}]}
    prompt = post(server, "/apply-template", body).json()["prompt"]
    assert "a<|im_end|>b" in prompt
    special = post(server, "/tokenize", {"content": prompt}).json()["tokens"]
    answer = post(server, "/v1/chat/completions", {**body, "max_tokens": 1}).json()
    # As text the name takes several tokens, not one.
    assert answer["usage"]["prompt_tokens"] > len(special)


def test_models(server, client, model):
    models = client.models.list().data
    assert [entry.id for entry in models] == ["SmolLM2-135M-Instruct.Q4_1"]
    entry = httpx.get(server.base_url + "/v1/models/local").json()
    assert entry["id"] == models[0].id
    assert entry["context_window"] == entry["meta"]["n_ctx_train"] == 8192
    for name in (models[0].id, "local", "default", "SmolLM2-135M-Instruct.Q4_1.gguf"):
        client.completions.create(model=name, prompt="a", max_tokens=1)


def test_text_endpoints(server):
    tokens = post(server, "/tokenize", {"content": "Hello wörld"}).json()["tokens"]
    assert post(server, "/detokenize", {"tokens": tokens}).json() == {"content": "Hello wörld"}
    pieces = post(server, "/tokenize", {"content": "Hello 🦜", "with_pieces": True}).json()
    spelled = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode()
                       for p in pieces["tokens"])
    assert spelled.decode() == "Hello 🦜"
    marked = {"content": "<|im_start|>"}
    assert len(post(server, "/tokenize", marked).json()["tokens"]) == 1
    assert len(post(server, "/tokenize", {**marked, "parse_special": False}).json()["tokens"]) > 1


def test_the_last_message_can_be_continued(server):
    messages = [*MESSAGES, {"role": "assistant", "content": "Red, orange,"}]
    prompt = post(server, "/apply-template",
                  {"messages": messages, "continue_final_message": True}).json()["prompt"]
    assert prompt.endswith("Red, orange,")


# Refusals


def refusal(response: httpx.Response, status: int) -> dict:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_an_unknown_model_is_404(client):
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)
    assert refused.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


@pytest.mark.parametrize("path, body", [
    ("/v1/completions", {"prompt": "word " * 9000}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 9000}]}),
])
def test_a_prompt_beyond_the_context_is_400(server, path, body):
    for stream in (False, True):
        error = refusal(post(server, path, {**body, "stream": stream}), 400)
        assert error["code"] == "context_length_exceeded"
        assert "exceeds the available context size" in error["message"]


@pytest.mark.parametrize("body, param", [
    ({"messages": MESSAGES, "temperature": "hot"}, "temperature"),
    ({"messages": MESSAGES, "temperature": -1}, "temperature"),
    ({"messages": MESSAGES, "top_p": 2}, "top_p"),
    ({"messages": MESSAGES, "logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"messages": MESSAGES, "tools": [{"type": "function", "function": {"description": "f"}}]},
     "tools[0].function"),
    ({"messages": MESSAGES, "response_format": {"type": "xml"}}, "response_format.type"),
    ({"messages": MESSAGES, "guided_json": {"uniqueItems": True}}, "guided_json"),
    ({"messages": MESSAGES, "guided_regex": "(a"}, "guided_regex"),
    ({"messages": MESSAGES, "unheard_of": 1}, "unheard_of"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
     "messages[0].content[0].image_url"),
    ({}, "messages"),
])
def test_a_wrong_parameter_is_named(server, body, param):
    assert refusal(post(server, "/v1/chat/completions", body), 400)["param"] == param


def test_bad_json_says_where(server):
    error = refusal(post(server, "/v1/chat/completions", '{"messages": [}'), 400)
    assert error["code"] == "invalid_json"
    assert "byte 15" in error["message"]


def test_paths_and_methods(server):
    refusal(httpx.get(server.base_url + "/v1/nothing"), 404)
    response = httpx.get(server.base_url + "/v1/completions")
    refusal(response, 405)
    assert "POST" in response.headers["allow"]
    assert httpx.head(server.base_url + "/health").status_code == 200
    response = httpx.options(server.base_url + "/v1/completions",
                             headers={"Origin": "http://page.example"})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "http://page.example"
    assert "POST" in response.headers["access-control-allow-methods"]


def test_limits(start_server):
    server = start_server("--body-limit", "1")
    refusal(post(server, "/v1/completions", b"x" * 2_000_000), 413)
    refusal(httpx.get(server.base_url + "/health", headers={"X-Long": "y" * 100_000}), 431)
    assert httpx.get(server.base_url + "/health").status_code == 200


def test_a_long_body_expects_to_be_asked_for(server):
    body = json.dumps({"content": "word " * 1000}).encode()
    with socket.create_connection(address(server), timeout=10) as connection:
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                           b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert connection.recv(4096).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_client_of_http_1_0_gets_no_interim_answer(server):
    with socket.create_connection(address(server), timeout=10) as connection:
        connection.sendall(b"POST /tokenize HTTP/1.0\r\nExpect: 100-continue\r\n"
                           b"Content-Length: 15\r\n\r\n{\"content\":\"a\"}")
        assert connection.recv(4096).startswith(b"HTTP/1.0 200")


def test_memory_of_a_prompt_far_too_long_is_given_back(start_server):
    server = start_server()

    def own_bytes():
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        return 1024 * int(status.split("RssAnon:")[1].split()[0])

    before = own_bytes()
    refusal(post(server, "/v1/completions", {"prompt": "word " * 1_000_000}), 400)
    assert own_bytes() - before < 128 << 20


def test_requests_on_one_connection_are_answered_in_order(server):
    first = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = raw_exchange(server, first + first + last)
    assert answer.count(b"HTTP/1.1 200") == 3
    assert answer.index(b'"object":"list"') < answer.index(b'"status":"ok"')


# Clients that go away, and clients that send rubbish


def test_a_client_that_leaves_stops_its_generation(server):
    for stream in (True, False):
        cancelled = metric(server, "espalier_sequences_cancelled_total")
        connection = socket.create_connection(address(server))
        connection.sendall(chat_request({"stream": stream, "max_tokens": 8000,
                                         "ignore_eos": True}))
        wait_until(lambda: metric(server, "espalier_sequences_running") == 1, "it runs")
        connection.close()
        wait_until(lambda: metric(server, "espalier_sequences_running") == 0, "it stops")
        assert metric(server, "espalier_sequences_cancelled_total") == cancelled + 1
        wait_until(lambda: metric(server, "espalier_kv_blocks_used") == 0, "its state is freed")


def mutate(request: bytes, generator: random.Random) -> bytes:
    data = bytearray(request)
    for _ in range(generator.randint(1, 6)):
        place = generator.randrange(len(data) + 1)
        match generator.randrange(4):
            case 0:
                data[place:place] = generator.randbytes(generator.randint(1, 8))
            case 1:
                del data[place:place + generator.randint(1, 16)]
            case 2:
                data[place:place + 1] = generator.choice([b'"', b"{", b"[", b"\\", b"\0", b"\xff",
                                                          b"-1", b"1e9", b"null", b"\r\n"])
            case 3:
                data = data[:place]
        if not data:
            break
    return bytes(data)


def test_malformed_requests_do_no_harm(server):
    generator = random.Random(1)
    originals = [
        chat_request({"max_tokens": 1, "temperature": 0, "stop": ["a"], "seed": 1}),
        chat_request({"max_tokens": 1, "stream": True, "logit_bias": {"5": 1}, "n": 2}),
        b"GET /v1/models/a%20b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"f\r\n{\"content\":\"a\"}\r\n0\r\n\r\n",
    ]
    for number in range(10_000):
        with socket.create_connection(address(server), timeout=20) as connection:
            connection.sendall(mutate(originals[number % len(originals)], generator))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
            assert not answer or answer.startswith(b"HTTP/1.")
            # 501 is what RFC 9112 answers to a transfer coding that is not known.
            assert answer[9:10] != b"5" or answer[9:12] == b"501", answer
    assert httpx.get(server.base_url + "/health").json() == {"status": "ok"}
    wait_until(lambda: metric(server, "espalier_sequences_running") == 0, "all is cancelled")
    assert metric(server, "espalier_kv_blocks_used") == 0


def resident_bytes(server) -> int:
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status.read(), re.MULTILINE)[1]) * 1024


def completion_request(more: dict) -> bytes:
    body = json.dumps({"prompt": "The", **more}).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body))


def read_stream(connection: socket.socket) -> str:
    """The text of a stream of completions, read to its end."""
    data = b""
    while b"data: [DONE]" not in data:
        received = connection.recv(65536)
        assert received, data[-500:]
        data += received
    events = re.findall(rb"^data: (\{.*\})\r?$", data, re.MULTILINE)
    return "".join(json.loads(event)["choices"][0]["text"] for event in events)


def test_a_thousand_open_streams(start_server):
    server = start_server()
    request = completion_request({"stream": True, "max_tokens": 2, "temperature": 0})
    with socket.create_connection(address(server)) as connection:
        connection.sendall(request)
        expected = read_stream(connection)
    long = completion_request({"stream": True, "max_tokens": 8000, "ignore_eos": True})
    generating = [socket.create_connection(address(server)) for _ in range(8)]
    for connection in generating:
        connection.sendall(long)
    wait_until(lambda: metric(server, "espalier_sequences_running") == 8, "eight generate")
    before = resident_bytes(server)
    streams = [socket.create_connection(address(server), timeout=300) for _ in range(1000)]
    for connection in streams:
        connection.sendall(request)
    wait_until(lambda: metric(server, "espalier_sequences_waiting") == 1000, "a thousand wait")
    assert metric(server, "espalier_sequences_running") == 8
    assert httpx.get(server.base_url + "/health").status_code == 200
    assert (resident_bytes(server) - before) / 1000 < 64 * 1024
    for connection in generating:
        assert connection.recv(1000)
        connection.close()
    assert [read_stream(connection) for connection in streams] == [expected] * 1000
    for connection in streams:
        connection.close()


def test_health_says_loading_until_the_model_is_there(program, model, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([program, "--model", model, "--port", str(port)],
                                   stdout=subprocess.PIPE, stderr=log)
    seen = []
    try:
        def healthy():
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/health")
            except httpx.ConnectError:
                return False
            seen.append((answer.status_code, answer.text))
            return answer.status_code == 200

        wait_until(healthy, "the server is there")
        assert set(seen) <= {(200, '{"status":"ok"}'), (503, '{"status":"loading"}')}
        assert process.stdout.readline() == f"listening on http://127.0.0.1:{port}\n".encode()
    finally:
        process.kill()
        process.wait()


def test_sigterm_finishes_what_runs(start_server):
    server = start_server()
    client = openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.chat.completions.create(
        model="local", messages=MESSAGES, temperature=0, max_tokens=64,
        extra_body={"ignore_eos": True})))
    thread.start()
    wait_until(lambda: metric(server, "espalier_sequences_running") == 1, "it runs")
    server.process.send_signal(signal.SIGTERM)
    thread.join()
    assert answers[0].usage.completion_tokens == 64
    assert server.process.wait(timeout=30) == 0


def test_a_second_sigterm_stops_at_once(start_server):
    server = start_server()
    with socket.create_connection(address(server)) as connection:
        connection.sendall(chat_request({"stream": True, "max_tokens": 8000, "ignore_eos": True}))
        wait_until(lambda: metric(server, "espalier_sequences_running") == 1, "it runs")
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=10)


def test_the_grace_period_ends(start_server):
    server = start_server("--grace", "1")
    with socket.create_connection(address(server)) as connection:
        connection.sendall(chat_request({"stream": True, "max_tokens": 8000, "ignore_eos": True}))
        wait_until(lambda: metric(server, "espalier_sequences_running") == 1, "it runs")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=15) == 0


def test_killed_and_started_again_on_the_same_port(start_server):
    server = start_server()
    port = str(address(server)[1])
    with socket.create_connection(address(server)) as connection:
        connection.sendall(chat_request({"stream": True, "max_tokens": 8000, "ignore_eos": True}))
        connection.recv(1000)
        server.process.kill()
        server.process.wait()
        again = start_server("--port", port)
        assert again.base_url == server.base_url
        assert httpx.get(again.base_url + "/health").status_code == 200


def test_a_port_in_use_is_named(server, espalier, model):
    port = address(server)[1]
    done = espalier("serve", "--model", model, "--port", port)
    assert done.returncode == 1
    assert f":{port}" in done.stderr


def test_list_parameters(succeed):
    table = succeed("serve", "--list-parameters")
    assert re.search(r"^/v1/chat/completions +temperature +mapped ", table, re.MULTILINE)
    assert re.search(r"^/v1/chat/completions +mirostat +refused ", table, re.MULTILINE)
    assert re.search(r"^/v1/completions +user +accepted ", table, re.MULTILINE)

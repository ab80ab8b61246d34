"""Chat templates that an operator or a client brings."""

import re
import socket
import time
from urllib.parse import urlsplit

import httpx
import openai

MESSAGES = [{"role": "user", "content": "Hi"}]
ECHO = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
STRICT = ("{% if messages[0].role != 'system' %}{{ raise_exception('Begin with the rules') }}"
          "{% endif %}" + ECHO)
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def rendered(server, **more):
    return httpx.post(server.base_url + "/apply-template", json={"messages": MESSAGES, **more},
                         timeout=60)


def error_of(answer):
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


def test_a_request_brings_its_template(server):
    own = rendered(server).json()["prompt"]
    assert rendered(server, chat_template=ECHO).json()["prompt"] == "<user>Hi"
    assert rendered(server, chat_template="default").json()["prompt"] == own
    assert rendered(server).json()["prompt"] == own


def test_it_is_what_the_model_reads(server):
    client = openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0)

    def prompt_tokens(**more):
        return client.chat.completions.create(model="local", messages=MESSAGES, max_tokens=1,
                                              temperature=0, **more).usage.prompt_tokens

    assert prompt_tokens(extra_body={"chat_template": "{{ messages[0].content }}"}) < prompt_tokens()


def test_its_refusal_is_a_400_with_its_message(server):
    assert error_of(rendered(server, chat_template=STRICT))["message"] == "Begin with the rules"
    for source in ("{% if %}", "{{ 'open", "{{ messages | no_such_filter }}"):
        assert error_of(rendered(server, chat_template=source))["param"] in ("chat_template",
                                                                             "messages")
    assert error_of(rendered(server, chat_template="none"))["param"] == "chat_template"
    assert error_of(rendered(server, chat_template=["a"]))["param"] == "chat_template"


def test_an_endless_template_is_stopped_while_others_are_served(server):
    start = time.monotonic()
    assert "fuel" in error_of(rendered(server, chat_template=ENDLESS))["message"]
    assert time.monotonic() - start < 60
    large = "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}"
    error_of(rendered(server, chat_template=large))
    assert httpx.get(server.base_url + "/health", timeout=60).status_code == 200


def test_an_operator_brings_a_template(start_server, espalier, model, tmp_path):
    path = tmp_path / "echo.jinja"
    path.write_text(ECHO)
    server = start_server("--chat-template", str(path))
    assert rendered(server).json()["prompt"] == "<user>Hi"
    path.write_text("{% if %}")
    broken = espalier("serve", "--model", model, "--port", "0", "--chat-template", path)
    assert broken.returncode == 1 and str(path) in broken.stderr
    missing = espalier("serve", "--model", model, "--chat-template", tmp_path / "none")
    assert missing.returncode == 2


def left_early(server) -> float:
    """Requests to /v1/completions whose client went away."""
    pattern = r'^\S*\{route="/v1/completions",status="499"\} (\S+)$'
    match = re.search(pattern, httpx.get(server.base_url + "/metrics").text, re.MULTILINE)
    return float(match[1]) if match else 0


def test_a_client_that_leaves_stops_the_encoding_of_its_prompt(server):
    address = urlsplit(server.base_url)
    body = b'{"prompt": "' + b"word and " * 1_000_000 + b'"}'
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    before = left_early(server)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head + body)
    deadline = time.monotonic() + 60
    while left_early(server) == before:
        assert time.monotonic() < deadline, "the request ran on"
        time.sleep(0.05)

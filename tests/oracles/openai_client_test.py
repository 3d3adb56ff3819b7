"""`weightcast-engine serve` as OpenAI's own client sees it."""

import json
import threading
import unittest

import httpx2
import openai
from served_model import CONTEXT, NAME, Served


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Served("--wait-max", "0.2")
        cls.client = openai.OpenAI(base_url=cls.served.url + "/v1", api_key="none", max_retries=0, timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.served.stop()

    def complete(self, **options):
        return self.client.completions.create(**{"model": NAME, "prompt": "one", "max_tokens": 12, "seed": 1, **options})

    def chat(self, **options):
        return self.client.chat.completions.create(**{
            "model": NAME, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "seed": 1, **options})

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual([model.id for model in models], [NAME])
        self.assertEqual(models[0].max_model_len, CONTEXT)
        self.assertEqual(self.client.models.retrieve(NAME).id, NAME)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-5")

    def test_completion(self):
        answer = self.complete()
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(answer.model, NAME)
        choice, = answer.choices
        self.assertEqual((choice.index, choice.finish_reason), (0, "length"))
        self.assertEqual(len(choice.token_ids), 12)
        self.assertEqual(
            (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens), (3, 12, 15))

    def test_seed_makes_it_deterministic(self):
        again = self.complete().choices[0].token_ids
        self.assertEqual(again, self.complete().choices[0].token_ids)
        self.assertNotEqual(again, self.complete(seed=2).choices[0].token_ids)
        unseeded = {tuple(self.complete(seed=openai.omit).choices[0].token_ids) for _ in range(3)}
        self.assertGreater(len(unseeded), 1)

    def test_prompt_of_ids_is_the_same_as_its_text(self):
        self.assertEqual(self.complete(prompt=list(b"one")).choices[0].token_ids, self.complete().choices[0].token_ids)

    def test_several_prompts_and_answers(self):
        answer = self.complete(prompt=["one", "two"], n=2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        alone = self.complete(prompt="two", seed=3)
        self.assertEqual(answer.choices[2].token_ids, alone.choices[0].token_ids)  # answer i has the seed + i
        self.assertEqual(answer.usage.prompt_tokens, 6)

    def test_log_probabilities(self):
        answer = self.complete(logprobs=3, temperature=0)
        found = answer.choices[0].logprobs
        self.assertEqual(len(found.token_logprobs), 12)
        for log_prob, top in zip(found.token_logprobs, found.top_logprobs):
            self.assertEqual(len(top), 3)
            self.assertEqual(log_prob, max(top.values()))

    def test_echo_with_log_probabilities(self):
        choice = self.complete(echo=True, logprobs=0, max_tokens=1).choices[0]
        self.assertTrue(choice.text.startswith("one"))
        self.assertEqual(len(choice.logprobs.token_logprobs), 4)
        self.assertIsNone(choice.logprobs.token_logprobs[0])
        self.assertEqual(choice.logprobs.text_offset[:4], [0, 1, 2, 3])

    def test_stop(self):
        text = self.complete(max_tokens=60, extra_body={"ignore_eos": True}).choices[0].text
        at = next(i for i in range(4, len(text)) if text[i].isascii() and text[i].isprintable())
        choice = self.complete(max_tokens=60, stop=[text[at]], extra_body={"ignore_eos": True}).choices[0]
        self.assertEqual(choice.finish_reason, "stop")
        self.assertEqual(choice.text, text[:text.index(text[at])])

    def test_stream_is_the_answer_at_once(self):
        whole = self.complete(n=2, max_tokens=40, logprobs=0)
        texts, ids, finish, usage = ["", ""], [[], []], [None, None], None
        for event in self.complete(n=2, max_tokens=40, logprobs=0, stream=True, stream_options={"include_usage": True}):
            usage = event.usage or usage
            for choice in event.choices:
                texts[choice.index] += choice.text
                ids[choice.index] += choice.token_ids
                finish[choice.index] = choice.finish_reason or finish[choice.index]
        self.assertEqual(texts, [choice.text for choice in whole.choices])
        self.assertEqual(ids, [choice.token_ids for choice in whole.choices])
        self.assertEqual(finish, ["length", "length"])
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_chat(self):
        answer = self.chat(logprobs=True, top_logprobs=2)
        choice, = answer.choices
        self.assertEqual(choice.message.role, "assistant")
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(len(choice.logprobs.content), 12)
        self.assertEqual(len(choice.logprobs.content[0].top_logprobs), 2)
        spelled = b"".join(bytes(token.bytes) for token in choice.logprobs.content).decode(errors="replace")
        self.assertEqual(spelled, choice.message.content)

    def test_chat_stream(self):
        whole = self.chat().choices[0].message
        first, text = None, ""
        for event in self.chat(stream=True):
            delta = event.choices[0].delta
            first = first or delta
            text += delta.content or ""
        self.assertEqual(first.role, "assistant")
        self.assertEqual(text, whole.content)

    def test_chat_stream_of_the_helper(self):
        options = {"model": NAME, "messages": [{"role": "user", "content": "hello"}], "seed": 1}
        with self.assertRaises(openai.LengthFinishReasonError):
            with self.client.chat.completions.stream(**options, max_tokens=12) as stream:
                stream.get_final_completion()
        text = self.chat(max_tokens=60).choices[0].message.content
        at = next(i for i in range(4, len(text)) if text[i].isascii() and text[i].isprintable())
        with self.client.chat.completions.stream(**options, max_tokens=60, stop=text[at]) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, text[:text.index(text[at])])

    def test_errors_have_the_client_s_own_types(self):
        def wrong(kind, **options):
            with self.assertRaises(kind) as caught:
                self.complete(**options)
            return str(caught.exception)

        self.assertIn("gpt-5", wrong(openai.NotFoundError, model="gpt-5"))
        self.assertIn("context", wrong(openai.BadRequestError, max_tokens=CONTEXT))
        self.assertIn("context", wrong(openai.BadRequestError, prompt="x" * CONTEXT))
        self.assertIn("'n'", wrong(openai.BadRequestError, n=10**9))
        self.assertIn("temperature", wrong(openai.BadRequestError, temperature=-1))
        self.assertIn("'prompt'", wrong(openai.BadRequestError, prompt={"a": 1}))
        self.assertIn("'logit_bias'", wrong(openai.BadRequestError, logit_bias={"5": 1}))
        self.assertIn("'stop'", wrong(openai.BadRequestError, stop=[7]))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[])
        self.assertEqual(caught.exception.body["code"], 400)
        with self.assertRaises(openai.BadRequestError):
            self.chat(tools=[{"type": "function", "function": {"name": "f"}}])

    def test_paused_worker_is_an_error_that_the_client_tries_again(self):
        patient = self.client.with_options(max_retries=4)
        self.assertEqual(httpx2.post(self.served.url + "/pause", params={"mode": "wait"}).json()["status"], "paused")
        try:
            with self.assertRaises(openai.InternalServerError) as caught:
                self.complete()
            self.assertEqual(caught.exception.status_code, 503)
            threading.Timer(0.3, lambda: httpx2.post(self.served.url + "/resume")).start()
            answer = patient.completions.create(model=NAME, prompt="one", max_tokens=2)
            self.assertEqual(len(answer.choices[0].token_ids), 2)
        finally:
            httpx2.post(self.served.url + "/resume")

    def test_stream_that_is_left_ends_its_answers(self):
        for _ in range(3):
            stream = self.complete(max_tokens=CONTEXT - 3, n=8, stream=True, extra_body={"ignore_eos": True})
            next(iter(stream))
            stream.close()
        with self.client.completions.with_streaming_response.create(model=NAME, prompt="a", max_tokens=1) as response:
            self.assertEqual(response.status_code, 200)
            json.loads(response.read())

    def test_many_clients_at_once(self):
        expected = [self.complete(seed=seed).choices[0].token_ids for seed in range(16)]
        got = [None] * 16

        def ask(seed):
            got[seed] = self.complete(seed=seed).choices[0].token_ids

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, expected)


if __name__ == "__main__":
    unittest.main()

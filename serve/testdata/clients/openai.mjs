// The official client of OpenAI's API: completions, streams, embeddings, responses, errors.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [url, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url + "/v1", apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Tell me a story." }];

const models = [];
for await (const m of client.models.list()) models.push(m.id);
assert.ok(models.includes(model));

const whole = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 24, logprobs: true, top_logprobs: 2 });
assert.equal(whole.choices[0].message.role, "assistant");
assert.equal(whole.choices[0].logprobs.content.length, whole.usage.completion_tokens);
assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);

const runner = client.chat.completions.stream({ model, messages, temperature: 0, max_tokens: 24, stream_options: { include_usage: true } });
const streamed = await runner.finalChatCompletion();
assert.equal(streamed.choices[0].message.content, whole.choices[0].message.content);
assert.equal(streamed.choices[0].finish_reason, whole.choices[0].finish_reason);
assert.equal((await runner.totalUsage()).completion_tokens, whole.usage.completion_tokens);

const many = await client.chat.completions.create({ model, messages, n: 3, seed: 1, max_tokens: 8 });
assert.deepEqual(many.choices.map((c) => c.index), [0, 1, 2]);

const schema = { type: "object", properties: { colour: { enum: ["red", "blue"] } }, required: ["colour"], additionalProperties: false };
const parsed = await client.chat.completions.parse({
  model, messages, max_tokens: 60, response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema } },
});
assert.match(JSON.parse(parsed.choices[0].message.content).colour, /^(red|blue)$/);

const tools = [{ type: "function", function: { name: "look", parameters: { type: "object", properties: { where: { enum: ["up", "down"] } }, required: ["where"], additionalProperties: false } } }];
const calling = client.chat.completions.stream({ model, messages, tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 100 });
const called = (await calling.finalChatCompletion()).choices[0];
assert.equal(called.finish_reason, "tool_calls");
assert.match(JSON.parse(called.message.tool_calls[0].function.arguments).where, /^(up|down)$/);
const answered = await client.chat.completions.create({
  model, tools, max_tokens: 8, messages: [...messages, called.message, { role: "tool", tool_call_id: called.message.tool_calls[0].id, content: "the moon" }],
});
assert.ok(answered.usage.completion_tokens > 0);

const text = await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 8, temperature: 0 });
let joined = "";
for await (const c of await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 8, temperature: 0, stream: true })) joined += c.choices[0].text;
assert.equal(joined, text.choices[0].text);

const response = await client.responses.create({ model, input: "Tell me a story.", max_output_tokens: 24, temperature: 0, store: false });
assert.equal(response.output_text, whole.choices[0].message.content);
assert.equal(response.usage.output_tokens, whole.usage.completion_tokens);
const events = [];
let said = "";
const responses = client.responses.stream({ model, input: "Tell me a story.", max_output_tokens: 24, temperature: 0, store: false });
for await (const e of responses) {
  events.push(e.type);
  if (e.type === "response.output_text.delta") said += e.delta;
}
assert.equal(said, response.output_text);
assert.equal(events[0], "response.created");
assert.match(events.at(-1), /^response\.(completed|incomplete)$/);
assert.equal((await responses.finalResponse()).output_text, response.output_text);

await assert.rejects(client.chat.completions.create({ model: "other", messages }), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
await assert.rejects(client.chat.completions.create({ model, messages, frobnicate: 1 }), (e) => e instanceof OpenAI.BadRequestError && e.param === "frobnicate");
await assert.rejects(client.chat.completions.create({ model, messages: [{ role: "user", content: "word ".repeat(2000) }] }), (e) => e.code === "context_length_exceeded");

const stopped = await client.chat.completions.create({ model, messages, stream: true, max_tokens: 400 });
for await (const _ of stopped) break; // which breaks the connection off
console.log("ok");

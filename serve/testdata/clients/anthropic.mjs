// The official client of Anthropic's API: messages, streams, tokens, errors.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const [url, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Tell me a story." }];

const whole = await client.messages.create({ model, messages, max_tokens: 24, temperature: 0 });
assert.equal(whole.type, "message");
assert.equal(whole.role, "assistant");
assert.equal(whole.content[0].type, "text");
assert.ok(["end_turn", "max_tokens"].includes(whole.stop_reason));

const stream = client.messages.stream({ model, messages, max_tokens: 24, temperature: 0 });
let said = "";
stream.on("text", (t) => (said += t));
const final = await stream.finalMessage();
assert.equal(said, whole.content[0].text);
assert.deepEqual(final.content.map((b) => b.text), whole.content.map((b) => b.text));
assert.equal(final.stop_reason, whole.stop_reason);
assert.equal(final.usage.output_tokens, whole.usage.output_tokens);

const word = whole.content[0].text.split(" ")[2];
const stopped = await client.messages.create({ model, messages, max_tokens: 24, temperature: 0, stop_sequences: [word] });
assert.equal(stopped.stop_reason, "stop_sequence");
assert.equal(stopped.stop_sequence, word);
assert.ok(!stopped.content.some((b) => b.text.includes(word)));

const counted = await client.messages.countTokens({ model, messages });
assert.equal(counted.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);

const turns = await client.messages.create({
  model, max_tokens: 8, system: [{ type: "text", text: "Be kind." }],
  messages: [...messages, { role: "assistant", content: [{ type: "text", text: "Once." }] }, { role: "user", content: [{ type: "text", text: "Go on." }] }],
});
assert.ok(turns.usage.output_tokens > 0);

await assert.rejects(client.messages.create({ model: "other", messages, max_tokens: 1 }), (e) => e instanceof Anthropic.NotFoundError);
await assert.rejects(client.messages.create({ model, messages }), (e) => e instanceof Anthropic.BadRequestError);
console.log("ok");

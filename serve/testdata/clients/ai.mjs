// Vercel's AI SDK, whose readers of streams are strict.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, streamText, tool } from "ai";
import { z } from "zod";

const [url, name] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "smelt", baseURL: url + "/v1", includeUsage: true, supportsStructuredOutputs: true });
const model = provider(name);
const ask = { model, prompt: "Tell me a story.", temperature: 0, maxOutputTokens: 24, maxRetries: 0 };

const whole = await generateText(ask);
assert.ok(whole.text.length > 0);
const stream = streamText({ ...ask, onError: ({ error }) => { throw error; } });
let said = "";
for await (const piece of stream.textStream) said += piece;
assert.equal(said, whole.text);
assert.equal(await stream.finishReason, whole.finishReason);
assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);

const { object } = await generateObject({ ...ask, maxOutputTokens: 60, schema: z.object({ colour: z.enum(["red", "blue"]) }) });
assert.match(object.colour, /^(red|blue)$/);

const look = tool({ description: "Look somewhere.", inputSchema: z.object({ where: z.enum(["up", "down"]) }) });
const calling = streamText({ ...ask, maxOutputTokens: 100, tools: { look }, toolChoice: { type: "tool", toolName: "look" }, onError: ({ error }) => { throw error; } });
const [call] = await calling.toolCalls;
assert.equal(call.toolName, "look");
assert.match(call.input.where, /^(up|down)$/);

const text = streamText({ ...ask, model: provider.completionModel(name), prompt: "Once upon a time" });
let rest = "";
for await (const piece of text.textStream) rest += piece;
assert.ok(rest.length > 0);
await assert.rejects(generateText({ ...ask, model: provider("other") }), (e) => e.statusCode === 404);
console.log("ok");

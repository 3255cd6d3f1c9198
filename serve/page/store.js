// Conversations and settings, stored in this browser.

const names = { talks: 'smelt.conversations', settings: 'smelt.settings' };

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise; // storage is forbidden, or another program wrote the value
  }
}

// write reports whether the value fits.
function write(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export const settings = read(names.settings, {});
export const saveSettings = () => write(names.settings, settings);

// A conversation is {id, messages}; a message is {role, content, reasoning, …} as in the API, and
// an answer also has its pace and its finish.
let talks = read(names.talks, []).filter((talk) => Array.isArray(talk?.messages));
export const conversations = () => talks;
export const saveConversations = () => write(names.talks, talks.filter((talk) => talk.messages.length > 0));

export function newConversation(messages = []) {
  const talk = { id: crypto.getRandomValues(new Uint32Array(2)).join('-'), messages };
  talks = [talk, ...talks.filter((other) => other.messages.length > 0)];
  return talk;
}

export function removeConversation(talk) {
  talks = talks.filter((other) => other !== talk);
  saveConversations();
}

export function removeAll() {
  talks = [];
  localStorage.removeItem(names.talks);
}

export function titleOf(talk) {
  const first = talk.messages.find((message) => message.role === 'user')?.content ?? '';
  return first.trim().split('\n')[0].slice(0, 80) || 'Empty conversation';
}

// said returns the members of a message that the API and files have.
export function said({ role, content, reasoning, tool_calls, tool_call_id, name }) {
  const message = { role, content };
  if (reasoning) message.reasoning = reasoning;
  if (tool_calls) message.tool_calls = tool_calls;
  if (tool_call_id) message.tool_call_id = tool_call_id;
  if (name) message.name = name;
  return message;
}

// toFile and fromFile convert to and from the format of /save and /load in smelt chat, which has
// the system prompt as its first message.
export function toFile(talk, system) {
  const messages = talk.messages.map(said);
  if (system) messages.unshift({ role: 'system', content: system });
  return JSON.stringify({ messages }, null, 1) + '\n';
}

export function fromFile(text) {
  const read = JSON.parse(text);
  const messages = Array.isArray(read) ? read : read?.messages;
  const fits = (m) => typeof m?.role === 'string' && (m.content == null || typeof m.content === 'string' || Array.isArray(m.content));
  if (!Array.isArray(messages) || !messages.every(fits)) throw new Error('it has no messages');
  const joined = (content) => (Array.isArray(content) ? content.map((part) => part?.text ?? '').join('') : content ?? '');
  const all = messages.map((m) => said({ ...m, content: joined(m.content), reasoning: m.reasoning ?? m.reasoning_content }));
  const system = all[0]?.role === 'system' ? all.shift().content : '';
  return { messages: all, system };
}

// A client of the server's API. Paths are relative, so that the page can be served under any
// prefix.

// Failure is an error with a message for the reader of the page.
export class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

// The key is kept for the lifetime of this tab.
const keyName = 'smelt.key';
export const setKey = (key) => sessionStorage.setItem(keyName, key);

async function request(path, init = {}) {
  const key = sessionStorage.getItem(keyName);
  const headers = { ...init.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  let answer;
  try {
    answer = await fetch(path, { ...init, headers });
  } catch (cause) {
    if (cause.name === 'AbortError') throw cause;
    throw new Failure('The server does not answer. Is it running?');
  }
  if (answer.ok) return answer;
  let message = `${answer.status} ${answer.statusText}`;
  try {
    message = (await answer.json()).error.message;
  } catch { /* it came from something before the server */ }
  throw new Failure(message, answer.status);
}

export async function models() {
  return (await (await request('v1/models')).json()).data;
}

export async function graph(query) {
  return (await request(`graph?${new URLSearchParams(query)}`)).json();
}

// chat yields the chunks of an answer. It throws a Failure if the stream ends early.
export async function* chat(body, signal) {
  const answer = await request('v1/chat/completions', {
    method: 'POST', signal, headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
  });
  let ended = false;
  try {
    for await (const data of events(answer.body)) {
      ended = data === '[DONE]';
      if (ended) return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Failure(chunk.error.message);
      yield chunk;
    }
  } catch (cause) {
    if (cause instanceof Failure || cause.name === 'AbortError') throw cause;
    throw new Failure('The connection was lost: the answer is incomplete.');
  }
  if (!ended) throw new Failure('The server stopped: the answer is incomplete.');
}

// events yields the data of server-sent events.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith('data:')) yield line.slice(5).trim();
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

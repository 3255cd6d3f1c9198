// A text that grows by tokens, with the token at each position.

// A part {from, to, scores} is a range of the text with the entries of the API's logprobs for it,
// mostly one. Parts are consecutive; without logprobs there are none.
export class Tokens {
  text = '';
  parts = [];
  #waiting = []; // scores of tokens without text yet, such as half a character

  // add appends a chunk's text and the scores of its tokens.
  add(text, scores) {
    const from = this.text.length;
    this.text += text;
    const all = [...this.#waiting, ...scores];
    if (!text) {
      this.#waiting = all;
      return;
    }
    this.#waiting = [];
    if (all.length === 0) return;
    const pieces = piecesOf(all);
    if (pieces.join('') !== text) { // marks removed by the server, or incomplete characters
      this.parts.push({ from, to: this.text.length, scores: all });
      return;
    }
    let at = from;
    all.forEach((score, i) => {
      if (pieces[i]) this.parts.push({ from: at, to: at + pieces[i].length, scores: [score] });
      else this.parts.at(-1)?.scores.push(score);
      at += pieces[i].length;
    });
  }

  // first returns the index of the first part that ends behind a position.
  first(place) {
    let low = 0;
    let high = this.parts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.parts[middle].to > place) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

function piecesOf(scores) {
  const decoder = new TextDecoder();
  return scores.map((score) => decoder.decode(new Uint8Array(score.bytes ?? []), { stream: true }));
}

const percent = (logprob) => {
  const p = 100 * Math.exp(logprob);
  return `${p >= 10 ? p.toFixed(0) : p >= 0.1 ? p.toFixed(1) : '<0.1'} %`;
};

// visible shows spaces, line ends, and the bytes of an incomplete character.
function visible({ token, bytes }) {
  if (token.includes('\ufffd')) return (bytes ?? []).map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  return token.replace(/ /g, '·').replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/[\u202a-\u202e\u2066-\u2069]/g, '') || '(nothing)';
}

// likelihood returns the product of the probabilities of a part's tokens.
export const likelihood = (part) => Math.exp(part.scores.reduce((sum, score) => sum + score.logprob, 0));

// alternatives returns the candidates for a token, the most likely first, as {token, share, width,
// chosen}.
export function alternatives(score) {
  const top = score.top_logprobs ?? [];
  const same = (a) => a.token === score.token && String(a.bytes) === String(score.bytes);
  const all = top.some(same) ? top : [...top, score];
  return all.map((a) => ({ token: visible(a), share: percent(a.logprob), width: Math.exp(a.logprob), chosen: same(a) }));
}

// spoken returns a part as text for screen readers.
export function spoken(part) {
  return part.scores.map((score) => {
    const [chosen, others] = [alternatives(score).find((a) => a.chosen), alternatives(score).filter((a) => !a.chosen)];
    return `${chosen.token} ${chosen.share}` + (others.length ? `; else ${others.map((a) => `${a.token} ${a.share}`).join(', ')}` : '');
  }).join('. ');
}

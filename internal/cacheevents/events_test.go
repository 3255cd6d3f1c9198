package cacheevents_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/cacheevents"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// subscriber prints the parts of each message in hexadecimal digits.
const subscriber = `
#include <stdio.h>
#include <zmq.h>
int main(int count, char **arguments) {
    void *socket = zmq_socket(zmq_ctx_new(), ZMQ_SUB);
    if (zmq_connect(socket, arguments[1]) != 0 || zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "kv@", 3) != 0) return 1;
    printf("connected\n"); fflush(stdout);
    for (;;) {
        zmq_msg_t part;
        int more; size_t size = sizeof more;
        zmq_msg_init(&part);
        if (zmq_msg_recv(&part, socket, 0) < 0) return 1;
        for (size_t i = 0; i < zmq_msg_size(&part); i++) printf("%02x", ((unsigned char *)zmq_msg_data(&part))[i]);
        zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size);
        printf(more ? " " : "\n"); fflush(stdout);
        zmq_msg_close(&part);
    }
}`

// event is one of a batch, as vLLM has them.
type event []any

// TestEvents has libzmq subscribe, and an engine answer two prompts that begin alike in a cache
// that is too small for both.
func TestEvents(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "subscriber")
	require.NoError(t, os.WriteFile(program+".c", []byte(subscriber), 0o600))
	if out, err := exec.Command("gcc", "-o", program, program+".c", "-lzmq").CombinedOutput(); err != nil {
		if !testfiles.Full("deployed") {
			t.Skip("libzmq is not installed; make deployed does so")
		}
		t.Fatalf("%s", out)
	}
	p, err := cacheevents.Listen("tcp://127.0.0.1:0", "kv@here@tiny")
	require.NoError(t, err)
	defer p.Close()
	cmd := exec.Command(program, "tcp://"+p.Addr().String())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	require.True(t, lines.Scan())
	messages := make(chan string, 100)
	go func() {
		for lines.Scan() {
			messages <- lines.Text()
		}
	}()
	// Until the subscription has arrived, messages go nowhere.
	for joined := false; !joined; {
		p.Cleared()
		select {
		case <-messages:
			joined = true
		case <-time.After(20 * time.Millisecond):
		}
	}

	m, err := smelt.Open(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), "")
	require.NoError(t, err)
	defer m.Close()
	program1, err := m.Compile(smelt.Options{Target: "cpu", Level: 1, KV: dtype.F16, Context: 64})
	require.NoError(t, err)
	l, err := program1.Load(smelt.Device{Name: "cpu", Threads: 1})
	require.NoError(t, err)
	defer l.Close()
	e, err := l.NewEngine(smelt.EngineOptions{Sequences: 1, BlockSize: 8, Cache: p})
	require.NoError(t, err)
	defer e.Close()
	blocks := e.Stats().Blocks
	ids := func(from, n int) (list []int32) {
		for i := range n {
			list = append(list, int32(from+i))
		}
		return list
	}
	ask := func(tokens []int32) {
		for _, err := range e.Generate(t.Context(), smelt.Request{Tokens: tokens, Generation: smelt.Generation{N: 1}}) {
			require.NoError(t, err)
		}
	}
	first := ids(10, 25)
	ask(first)
	ask(append(first[:8:8], ids(100, 9)...))
	for i := range blocks { // others, until something is forgotten
		ask(ids(200+i, 17))
	}

	known, stored, removed, number := map[string][]any{}, [][]any{}, 0, uint64(0)
	for removed == 0 {
		var line string
		select {
		case line = <-messages:
		case <-time.After(10 * time.Second):
			t.Fatal("nothing was forgotten")
		}
		parts := strings.Fields(line)
		require.Len(t, parts, 3)
		raw := make([][]byte, 3)
		for i, part := range parts {
			raw[i], err = hex.DecodeString(part)
			require.NoError(t, err)
		}
		require.Equal(t, "kv@here@tiny", string(raw[0]))
		now := binary.BigEndian.Uint64(raw[1])
		require.True(t, number == 0 || now == number+1, "%d after %d", now, number)
		number = now
		var text bytes.Buffer
		_, err = msgp.UnmarshalAsJSON(&text, raw[2])
		require.NoError(t, err)
		var batch []json.RawMessage
		require.NoError(t, json.Unmarshal(text.Bytes(), &batch))
		require.Len(t, batch, 2)
		var at float64
		require.NoError(t, json.Unmarshal(batch[0], &at))
		require.WithinDuration(t, time.Now(), time.UnixMicro(int64(at*1e6)), time.Minute)
		var events []event
		require.NoError(t, json.Unmarshal(batch[1], &events))
		for _, e := range events {
			switch e[0] {
			case "BlockStored":
				hash := e[1].([]any)[0].(string)
				require.NotContains(t, known, hash)
				if e[2] != nil {
					require.Contains(t, known, e[2].(string), "a block follows one that is known")
				}
				require.EqualValues(t, 8, e[4])
				require.Nil(t, e[5])
				known[hash] = e
				stored = append(stored, e)
			case "BlockRemoved":
				hash := e[1].([]any)[0].(string)
				require.Contains(t, known, hash)
				delete(known, hash)
				removed++
			case "AllBlocksCleared":
				require.Empty(t, stored)
			default:
				t.Fatalf("%v", e)
			}
		}
	}
	tokens := func(e []any) (list []int32) {
		for _, x := range e[3].([]any) {
			list = append(list, int32(x.(float64)))
		}
		return list
	}
	require.Equal(t, first[:8], tokens(stored[0]))
	require.Nil(t, stored[0][2])
	require.Equal(t, first[8:16], tokens(stored[1]))
	require.Equal(t, stored[0][1].([]any)[0], stored[1][2])
	require.Equal(t, first[16:24], tokens(stored[2]))
	require.Equal(t, stored[1][1].([]any)[0], stored[2][2])
	require.Equal(t, ids(100, 8), tokens(stored[3]), "what the two share is stored once")
	require.Equal(t, stored[0][1].([]any)[0], stored[3][2])
}

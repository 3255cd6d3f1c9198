package constrain_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// sample is a file of MaskBench.
type sample struct {
	name   string
	Schema json.RawMessage
	Tests  []struct {
		Valid bool
		Data  json.RawMessage
	}
}

const maskbench = "maskbench/schemas.tar.xz"

var samples = sync.OnceValues(func() (all []sample, err error) {
	file, err := os.Open(filepath.Join(root, maskbench))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	x, err := xz.NewReader(file)
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(x); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.SortFunc(all, func(a, b sample) int { return strings.Compare(a.name, b.name) })
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(h.Name, ".json") {
			continue
		}
		s := sample{name: strings.TrimSuffix(filepath.Base(h.Name), ".json")}
		text, err := io.ReadAll(r)
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		all = append(all, s)
	}
})

var root string // of the reference data

// bench gives each nth file of MaskBench, or each of whole where tests are asked for everything.
func bench(t testing.TB, nth, whole int) (chosen []sample) {
	root = strings.TrimSuffix(testfiles.Data(t, maskbench), maskbench)
	all, err := samples()
	require.NoError(t, err)
	require.Greater(t, len(all), 5000)
	nth = testfiles.Rounds("models", nth, whole)
	for i, s := range all {
		if i%nth == 0 {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

type llama struct {
	*constrain.Vocabulary
	*tokenizer.Tokenizer
}

var loaded = sync.OnceValues(func() (*llama, error) {
	tok, err := checkpoint.OpenTokenizer(filepath.Join(root, "tokenizers/ggml-vocab/ggml-vocab-llama-bpe.gguf"))
	if err != nil {
		return nil, err
	}
	v, err := constrain.New(tok.Texts(), tok.StopIDs())
	return &llama{v, tok}, err
})

func llama3(t testing.TB) *llama {
	root = strings.TrimSuffix(testfiles.Data(t, maskbench), maskbench)
	l, err := loaded()
	require.NoError(t, err)
	return l
}

// read follows a text token by token, with a mask before each.
func (l *llama) read(c *constrain.Constraint, text string, mask []uint64, times *[]time.Duration) (ok bool, err error) {
	s := c.Start()
	for _, id := range l.Encode(text, false) {
		start := threadTime()
		if err := s.Mask(mask); err != nil {
			return false, err
		}
		*times = append(*times, threadTime()-start)
		allowed := mask[id>>6]>>(id&63)&1 != 0
		ok, err := s.Accept(id)
		if err != nil {
			return false, err
		}
		if ok != allowed {
			return false, fmt.Errorf("token %d of %q: the mask says %v, the constraint %v", id, text, allowed, ok)
		}
		if !ok {
			return false, nil
		}
	}
	return s.CanStop(), s.Mask(mask)
}

// TestMaskBench measures schemas, instances and masks as MaskBench does, with properties in
// any order where a valid instance has them in another than its schema.
func TestMaskBench(t *testing.T) {
	l := llama3(t)
	runtime.LockOSThread() // each mask is timed by its thread's processor time
	defer runtime.UnlockOSThread()
	mask := make([]uint64, l.Words())
	var passing, valid, accepted, reordered, invalid int
	var refusals, wrong, broken []string
	reasons := map[string]int{}
	var masks, first, refusing []time.Duration
	chosen := bench(t, 40, 1)
	for _, s := range chosen {
		begin := threadTime()
		c, err := l.JSONSchema(s.Schema, constrain.Options{})
		if err != nil {
			keyword := constrain.Keyword(err)
			if keyword == "" && strings.Contains(err.Error(), "too large") {
				keyword = "limits"
			}
			reasons[keyword]++
			refusing = append(refusing, threadTime()-begin)
			refusals = append(refusals, s.name+": "+err.Error())
			continue
		}
		if err := c.Start().Mask(mask); err != nil {
			reasons["limits"]++
			refusals = append(refusals, s.name+": first mask: "+err.Error())
			continue
		}
		first = append(first, threadTime()-begin)
		var free *constrain.Constraint
		good := true
		for i, test := range s.Tests {
			var text bytes.Buffer
			require.NoError(t, json.Compact(&text, test.Data))
			ok, err := l.read(c, text.String(), mask, &masks)
			if err == nil && !ok {
				if free == nil {
					free, err = l.JSONSchema(s.Schema, constrain.Options{AnyOrder: true})
				}
				if err == nil {
					ok, err = l.read(free, text.String(), mask, new([]time.Duration))
				}
				if ok && test.Valid {
					reordered++
				}
			}
			if err != nil {
				reasons["limits on the way"]++
				broken = append(broken, fmt.Sprintf("%s %d: %v", s.name, i, err))
				good = false
				continue
			}
			switch {
			case test.Valid:
				valid++
				if ok {
					accepted++
				}
			default:
				invalid++
			}
			if ok != test.Valid {
				good = false
				wrong = append(wrong, fmt.Sprintf("%s %d: valid %v, accepted %v", s.name, i, test.Valid, ok))
			}
		}
		if good {
			passing++
		}
	}
	slices.Sort(masks)
	slices.Sort(first)
	slices.Sort(refusing)
	mean := func(d []time.Duration) (sum time.Duration) {
		for _, x := range d {
			sum += x
		}
		return sum / time.Duration(max(len(d), 1))
	}
	t.Logf("%d schemas, %d passing (%.1f %%), %d refused; valid %d, accepted %d (%d of them in another order), invalid %d", len(chosen), passing, 100*float64(passing)/float64(len(chosen)), len(refusals), valid, accepted, reordered, invalid)
	at := func(d []time.Duration, q float64) time.Duration { return d[int(q*float64(len(d)-1))] }
	t.Logf("%d masks: mean %v, median %v, p99 %v, p99.9 %v, most %v; first: mean %v, p99 %v, most %v", len(masks), mean(masks), at(masks, 0.5), at(masks, 0.99), at(masks, 0.999), at(masks, 1), mean(first), at(first, 0.99), at(first, 1))
	t.Logf("refusing: mean %v, most %v", mean(refusing), at(refusing, 1))
	for _, k := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int { return reasons[b] - reasons[a] }) {
		t.Logf("refused for %q: %d", k, reasons[k])
	}
	for _, line := range slices.Concat(broken, wrong, refusals) {
		t.Log(line)
	}
	require.Empty(t, broken) // a bound is met before a text is begun, or never
	require.Empty(t, wrong)
	require.GreaterOrEqual(t, float64(passing), 0.85*float64(len(chosen)))
	// Ten times what they take on a machine that does nothing else.
	require.Less(t, mean(masks), 200*time.Microsecond)
	require.Less(t, at(masks, 0.999), 20*time.Millisecond)
	require.Less(t, at(masks, 1), 200*time.Millisecond)
	require.Less(t, mean(first), 5*time.Millisecond)
	require.Less(t, at(refusing, 1), 500*time.Millisecond)
}

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-fonts/dejavu/dejavusans"
	"github.com/go-fonts/liberation/liberationsansregular"
	"github.com/stretchr/testify/require"
	"golang.org/x/image/font"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"github.com/smelt-ml/smelt/internal/picture"
)

// fallbacks are fonts that machines without Helvetica take for it: DejaVu Sans is
// the widest of those in use, Liberation Sans has Helvetica's widths.
var fallbacks = map[string][]byte{"DejaVu Sans": dejavusans.TTF, "Liberation Sans": liberationsansregular.TTF}

func face(t *testing.T, data []byte, size float64) font.Face {
	f, err := opentype.Parse(data)
	require.NoError(t, err)
	face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingNone})
	require.NoError(t, err)
	return face
}

func points(x fixed.Int26_6) float64 { return float64(x) / 64 }

// drawnText is a line of text of an SVG and the box that it stands in.
type drawnText struct {
	text        string
	middle      float64
	size        float64
	left, right float64
}

var number = regexp.MustCompile(`-?[\d.]+`)

// texts reads the lines of pictures as Graphviz writes them: a group of a shape and
// the text in it for each vertex, after the shape and the title of the whole.
func texts(t *testing.T, svg string) (all []drawnText) {
	d := xml.NewDecoder(strings.NewReader(svg))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var left, right float64
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attr := map[string]string{}
		for _, a := range start.Attr {
			attr[a.Name.Local] = a.Value
		}
		switch start.Name.Local {
		case "polygon", "path":
			left, right = math.Inf(1), math.Inf(-1)
			for i, n := range number.FindAllString(attr["points"]+attr["d"], -1) {
				if i%2 == 0 { // x of a pair
					x, err := strconv.ParseFloat(n, 64)
					require.NoError(t, err)
					left, right = min(left, x), max(right, x)
				}
			}
		case "text":
			if attr["font-size"] == "" {
				continue // of a chart
			}
			require.Equal(t, "middle", attr["text-anchor"])
			require.Equal(t, picture.Fonts, attr["font-family"])
			line := drawnText{left: left, right: right}
			line.middle, err = strconv.ParseFloat(attr["x"], 64)
			require.NoError(t, err)
			line.size, err = strconv.ParseFloat(attr["font-size"], 64)
			require.NoError(t, err)
			require.NoError(t, d.DecodeElement(&line.text, &start))
			all = append(all, line)
		}
	}
}

// TestTextFits measures every line of text of every kind of picture in the fonts that
// stand in for Helvetica against its box, and the title against the picture.
func TestTextFits(t *testing.T) {
	for name, args := range map[string][]string{
		"source":  {"dot", "arch:qwen3-0.6b", "--stage", "source", "--layers", "0-0", "--svg"},
		"fused":   {"dot", "arch:qwen3-0.6b", "--layers", "0-0", "--svg"},
		"rope":    {"dot", "arch:llama3.2-1b", "--layers", "1-1", "--svg", "--type", "q4_k_m"},
		"plan":    {"dot", "arch:qwen3-0.6b", "--stage", "plan", "--layers", "27-27", "--svg"},
		"prefill": {"dot", "arch:qwen3-0.6b", "--stage", "plan", "--phase", "prefill", "--layers", "3-4", "--svg"},
		"page":    {"explain", "arch:qwen3-0.6b", "--html", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			status, svg, problems := call(t, args...)
			require.Zero(t, status, problems)
			lines := texts(t, svg)
			require.Greater(t, len(lines), 15)
			for family, data := range fallbacks {
				faces := map[float64]font.Face{}
				for _, l := range lines {
					if faces[l.size] == nil {
						faces[l.size] = face(t, data, l.size)
					}
					half := points(font.MeasureString(faces[l.size], l.text)) / 2
					require.LessOrEqual(t, l.left, l.middle-half, "%q leaves its box in %s", l.text, family)
					require.GreaterOrEqual(t, l.right, l.middle+half, "%q leaves its box in %s", l.text, family)
				}
			}
		})
	}
}

// No letter takes more room in either font than pictures give it.
func TestTextWidth(t *testing.T) {
	for family, data := range fallbacks {
		f := face(t, data, 1000)
		for r := ' '; r < 0x180; r++ {
			if advance, ok := f.GlyphAdvance(r); ok && r != 0x7f {
				require.LessOrEqual(t, points(advance), picture.TextWidth(string(r), 1000)+0.5, "%q in %s", r, family)
			}
		}
	}
	require.InDelta(t, 1000*14*0.612, 1000*picture.TextWidth("o", 14), 1)
}

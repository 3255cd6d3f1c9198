package page

import (
	_ "embed"
	"fmt"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/smelt-ml/smelt/lower/predict"
)

//go:embed page.css
var style string

// view is the content of a page.
type view struct {
	model, phase, target string
	prediction           predict.Prediction
	facts                []fact
	counts               counts
	columns              []column
	pictures             []stagePicture
	fused, kernels       []swatch // legends of the pictures and of the charts
	schedule             []chart
	arena                chart
}

func (v *view) document() g.Node {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.TitleEl(g.Textf("%s: %s on %s", v.model, v.phase, v.target)),
			h.Link(h.Rel("icon"), h.Href("data:,")),
			h.StyleEl(g.Raw(style)),
		),
		h.Body(
			h.Header(
				h.H1(g.Text(v.model)),
				h.P(h.Class("what"), g.Text("What the compiler did: "), h.B(g.Text(v.phase)), g.Text(" on "), h.B(g.Text(v.target))),
				h.Nav(link("counts", "Counts"), link("passes", "Passes"), link("graphs", "Graphs"), link("schedule", "Schedule"), link("arena", "Memory")),
			),
			h.Main(
				h.Section(h.Class("facts"), g.Map(v.facts, func(f fact) g.Node {
					return h.Div(h.Class("fact"), h.Span(g.Text(f.Label)), h.Strong(g.Text(f.Value)), h.Em(g.Text(f.Note)))
				})),
				v.tables(),
				v.passes(),
				v.graphs(),
				v.timelines(),
				h.Section(h.ID("arena"),
					h.H2(g.Text("Memory")),
					h.P(g.Text("The arena holds the values that dispatches pass to each other. Horizontal: dispatches; vertical: addresses; colours as in the "+
						"schedule, by the kernel that writes the value. Values that are never live at the same time share addresses.")),
					v.arena.figure(),
				),
			),
		),
	))
}

func link(section, name string) g.Node { return h.A(h.Href("#"+section), g.Text(name)) }

// head returns the header row of a table; a name with the prefix # is a column of numbers.
func head(names ...string) g.Node {
	return h.THead(h.Tr(g.Map(names, func(name string) g.Node {
		if name[0] == '#' {
			return h.Th(h.Class("n"), g.Text(name[1:]))
		}
		return h.Th(g.Text(name))
	})))
}

func numbers(cells ...string) g.Node {
	return g.Map(cells, func(cell string) g.Node { return h.Td(h.Class("n"), g.Text(cell)) })
}

func (v *view) tables() g.Node {
	kernel := func(k kernelCount, name, share g.Node) g.Node {
		return h.Tr(h.Td(name), numbers(fmt.Sprint(k.Dispatches), k.Read, k.Written, k.Ops, k.Micros), h.Td(share))
	}
	rules := h.Table(
		h.Caption(g.Text("Fusion rules, and the savings of each: the difference to a step that is compiled without this rule alone")),
		head("rule", "#matches", "#dispatches", "#read", "#written", "#µs", "what it does"),
		h.TBody(g.Map(v.counts.Rules, func(r ruleCount) g.Node {
			return h.Tr(h.Td(h.Code(g.Text(r.Rule))), numbers(r.Matches, r.Dispatches, r.Read, r.Written, r.Micros), h.Td(h.Class("doc"), g.Text(r.Doc)))
		})),
	)
	return h.Section(h.ID("counts"),
		h.H2(g.Text("Counts")),
		h.Div(h.Class("tables"),
			h.Div(
				h.Table(
					h.Caption(g.Text("Kernels of a step")),
					head("kernel", "#dispatches", "#read", "#written", "#operations", "#µs on "+v.prediction.Chip, "share of the step"),
					h.TBody(g.Map(v.counts.Kernels, func(k kernelCount) g.Node {
						meter := h.Span(h.Class("meter"), h.I(g.Attr("style", fmt.Sprintf("width:%.1f%%", k.Share))))
						return kernel(k, h.Code(g.Text(k.Kernel)), g.Group{meter, g.Textf(" %.1f %%", k.Share)})
					})),
					h.TFoot(kernel(v.counts.Total, g.Text("all"), g.Text("with the time between dispatches"))),
				),
				g.If(len(v.counts.Rules) > 0, rules),
			),
			h.Table(
				h.Caption(g.Text("Ops of the graphs")),
				head("op", "#source", "#fused"),
				h.TBody(g.Map(v.counts.Ops, func(o opCount) g.Node { return h.Tr(h.Td(h.Code(g.Text(o.Op))), numbers(o.Source, o.Fused)) })),
			),
		),
	)
}

func (v *view) passes() g.Node {
	return h.Section(h.ID("passes"),
		h.H2(g.Text("Passes")),
		h.P(g.Text("One column for each pass. "), h.Ins(g.Text("New")), g.Text(", "), h.Mark(g.Text("changed")), g.Text(" and "), h.Del(g.Text("removed")),
			g.Text(" values are marked, compared with the previous column; a narrow column is a pass that changed nothing. Weights are shown where they are read.")),
		h.Div(h.Class("columns"), g.Map(v.columns, func(c column) g.Node {
			if c.Same {
				return h.Article(h.Class("same"), h.Title(c.Doc), h.H3(g.Text(c.Name)))
			}
			values := fmt.Sprintf("%d values", c.Values)
			switch {
			case c.Fewer > 0:
				values += fmt.Sprintf(", %d fewer", c.Fewer)
			case c.More > 0:
				values += fmt.Sprintf(", %d more", c.More)
			}
			return h.Article(
				h.H3(g.Text(c.Name)),
				h.P(h.Class("doc"), g.Text(c.Doc)),
				h.P(h.Class("doc"), g.Text(values)),
				g.Map(c.Groups, func(part group) g.Node {
					return h.Details(g.If(part.Open, g.Attr("open")), h.Summary(g.Text(part.Title)), h.Pre(g.Map(part.Lines, line.node)))
				}),
			)
		})),
	)
}

// elements maps what a pass did to a value to an HTML element.
var elements = map[string]string{"new": "ins", "gone": "del", "edit": "mark", "": "span"}

func (l line) node() g.Node {
	return g.Group{g.El(elements[l.Mark], h.Title(l.Title), g.Text(l.Text)), g.Text("\n")}
}

func (v *view) graphs() g.Node {
	tabs := g.Group{}
	for i, p := range v.pictures {
		id := "graph-" + p.Name
		tabs = append(tabs,
			h.Input(h.Type("radio"), h.Name("graph"), h.ID(id), g.If(i == 0, h.Checked())), h.Label(h.For(id), g.Text(p.Name)),
			h.Div(h.Class("picture"), h.P(g.Text(p.Text)), g.Raw(p.SVG)))
	}
	return h.Section(h.ID("graphs"),
		h.H2(g.Text("Graphs")),
		h.P(g.Text("Layer 0 and the values outside of the layers. Ops of one colour become one dispatch.")),
		legend(v.fused, func(text string) g.Node { return h.Code(g.Text(text)) }),
		h.Div(h.Class("tabs"), tabs),
	)
}

func legend(swatches []swatch, text func(string) g.Node) g.Node {
	return h.Ul(h.Class("legend"), g.Map(swatches, func(s swatch) g.Node {
		return h.Li(h.I(g.Attr("style", "background:"+s.Colour)), text(s.Text))
	}))
}

func (v *view) timelines() g.Node {
	return h.Section(h.ID("schedule"),
		h.H2(g.Text("Schedule")),
		h.P(g.Text("A step on a model of "), h.B(g.Text(v.prediction.Chip)), g.Textf(": %.2f ms. ", v.prediction.MS), h.B(g.Text("This is a prediction")),
			g.Text(" from bytes, operations and a table of chips; nothing here was measured. Red lines are barriers. Point at a bar for its figures.")),
		legend(v.kernels, g.Text),
		g.Map(v.schedule, chart.figure),
	)
}

func (c chart) figure() g.Node {
	coordinate := func(name string, x float64) g.Node { return g.Attr(name, fmt.Sprintf("%.1f", x)) }
	path := func(r rule) g.Node {
		return g.El("path", h.Class(r.Class), g.Attr("d", fmt.Sprintf("M%.1f %.1fL%.1f %.1f", r.X1, r.Y1, r.X2, r.Y2)))
	}
	drawn := func(r rule, tick bool) g.Node { return g.If((r.Class == "tick") == tick, path(r)) }
	return h.Figure(
		h.FigCaption(g.Text(c.Title), g.If(c.Note != "", g.Group{g.Text(" "), h.Em(g.Text(c.Note))})),
		h.SVG(h.Class("chart"), g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", c.Width, c.Height)), h.Role("img"), h.Aria("label", c.Title),
			g.Map(c.Lines, func(r rule) g.Node { return drawn(r, true) }), // behind the bars
			g.Map(c.Bars, func(b bar) g.Node {
				return g.El("g",
					g.El("title", g.Text(b.Title)),
					g.El("rect", coordinate("x", b.X), coordinate("y", b.Y), coordinate("width", b.W), coordinate("height", b.H), g.Attr("fill", b.Colour)),
					g.If(b.Text != "", g.El("text", coordinate("x", b.X), coordinate("y", b.Y), g.Attr("dx", "4"), g.Attr("dy", "12.5"), g.Text(b.Text))),
				)
			}),
			g.Map(c.Lines, func(r rule) g.Node { return drawn(r, false) }),
			g.Map(c.Labels, func(l label) g.Node {
				return g.El("text", h.Class(l.Class), coordinate("x", l.X), coordinate("y", l.Y), g.Text(l.Text))
			}),
		),
	)
}

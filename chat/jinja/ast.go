package jinja

// An expr is an expression, which evaluates to a value.
type expr interface{ eval(r *run) Value }

// A stmt is a statement, which writes output and may leave a loop.
type stmt interface{ exec(r *run) signal }

// signal is how a statement ends: normally, by break or by continue.
type signal uint8

const (
	goOn signal = iota
	breakLoop
	continueLoop
)

type (
	literal  struct{ value Value }
	name     struct{ name string }
	listExpr struct {
		items []expr
		form  listForm
	}
	dictExpr  struct{ keys, values []expr }
	attribute struct {
		of   expr
		name string
	}
	item      struct{ of, key expr }
	sliceExpr struct{ of, from, to, step expr } // omitted parts are nil
	callExpr  struct {
		callee expr
		args   arguments
	}
	filterExpr struct {
		of expr
		filterCall
	}
	filterCall struct {
		name   string
		filter filter
		args   arguments
	}
	testExpr struct {
		of     expr
		test   test
		args   arguments
		negate bool
	}
	notExpr  struct{ of expr }
	signExpr struct {
		of    expr
		minus bool
	}
	logicExpr struct {
		a, b expr
		or   bool
	}
	binaryExpr struct {
		a, b expr
		op   string
		do   func(r *run, a, b Value) Value
	}
	// compareExpr compares each value with the one before it: a < b < c.
	compareExpr struct {
		of   expr
		with []comparand
	}
	comparand struct {
		op string
		do func(r *run, a, b Value) Value
		to expr
	}
	condExpr struct{ test, then, otherwise expr } // otherwise is nil without else
)

// arguments are the arguments of a call, positional and named.
type arguments struct {
	pos    []expr
	spread int // 1-based index in pos of an argument that is expanded as a list; 0: none
	names  []string
	kw     []expr
	kwMap  expr // expanded mapping, or nil
}

type (
	textStmt   struct{ text Text }
	outputStmt struct{ of expr }
	ifStmt     struct {
		test            expr
		then, otherwise []stmt
	}
	forStmt struct {
		vars            []string
		of, test        expr // test can be nil
		recursive       bool // loop(items) renders the loop for other items
		body, otherwise []stmt
	}
	setStmt struct {
		targets []target
		value   expr
	}
	setBlockStmt struct {
		target target
		filter []filterCall
		body   []stmt
	}
	macroStmt struct {
		name string
		macro
	}
	callStmt struct {
		call   *callExpr
		caller macro
	}
	filterStmt struct {
		filters []filterCall
		body    []stmt
	}
	withStmt struct {
		names  []string
		values []expr
		body   []stmt
	}
	signalStmt struct{ signal signal }
)

// macro is the common part of a macro and of the body of a call block.
type macro struct {
	params   []string
	defaults []expr // nil for parameters without a default
	body     []stmt
}

// target is a variable, or an attribute of a namespace.
type target struct{ name, attribute string }

package jinja

// An expr has a value.
type expr interface{ eval(r *run) Value }

// A stmt writes, and may leave a loop.
type stmt interface{ exec(r *run) signal }

// signal is how a statement ends.
type signal uint8

const (
	goOn signal = iota
	breakLoop
	continueLoop
)

type (
	literal   struct{ value Value }
	name      struct{ name string }
	listExpr  struct{ items []expr }
	dictExpr  struct{ keys, values []expr }
	attribute struct {
		of   expr
		name string
	}
	item      struct{ of, key expr }
	sliceExpr struct{ of, from, to, step expr } // what is not said is nil
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
	condExpr struct{ test, then, otherwise expr } // without else, otherwise is nil
)

// arguments are those of a call, by place and by name.
type arguments struct {
	pos    []expr
	spread int // which of pos, counted from 1, is a list of arguments; 0: none
	names  []string
	kw     []expr
	kwMap  expr // **mapping, or nil
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
		of, test        expr // test may be nil
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

// macro is what a macro and the body of a call block have in common.
type macro struct {
	params   []string
	defaults []expr // nil where there is none
	body     []stmt
}

// target is a variable, or a namespace's attribute.
type target struct{ name, attribute string }

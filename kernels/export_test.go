package kernels

// Snake is what a field of a parameter struct is called in C.
var Snake = snake

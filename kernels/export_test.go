package kernels

// Snake returns the C name of a field of a parameter struct.
var Snake = snake

package gguf

// Exercise is for tests that cannot be in this package.
var Exercise = exercise

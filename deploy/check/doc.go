// Package check holds what lies in deploy/ to the types and schemas of those who read it:
// Kubernetes, the Gateway API and its inference extension, whose endpoint picker's own code
// reads the picker's configuration and the metrics of a server; BuildKit, whose parser and linter
// read the Containerfile. It is a module of its own, so that nothing of theirs is among smelt's
// dependencies.
package check

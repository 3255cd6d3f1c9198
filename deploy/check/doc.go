// Package check tests the files of deploy/ against their consumers: the types and schemas of
// Kubernetes, the Gateway API and its inference extension, whose endpoint picker reads the picker's
// configuration and a server's metrics, and BuildKit's parser and linter for the Containerfile. It
// is a separate module, to keep their code out of smelt's dependencies.
package check

// Command openai tries a server with OpenAI's own client for Go: whole answers, streams and
// errors. It is a module of its own, since the client alone takes as long to compile as all
// of smelt's Go.
//
//	go run . URL MODEL KEY
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
)

func main() {
	log.SetFlags(log.Lshortfile)
	ctx, url, model, key := context.Background(), os.Args[1]+"/v1", os.Args[2], os.Args[3]
	client := openai.NewClient(option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(0))
	ask := openai.ChatCompletionNewParams{
		Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Tell me a story.")},
		Temperature: param.NewOpt(0.0), MaxCompletionTokens: param.NewOpt[int64](24),
	}
	whole, err := client.Chat.Completions.New(ctx, ask)
	require(err)
	equal(whole.Choices[0].Message.Content != "", true)

	ask.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)}
	stream := client.Chat.Completions.NewStreaming(ctx, ask)
	var sum openai.ChatCompletionAccumulator
	for stream.Next() {
		equal(sum.AddChunk(stream.Current()), true)
	}
	require(stream.Err())
	equal(sum.Choices[0].Message.Content, whole.Choices[0].Message.Content)
	equal(sum.Usage.CompletionTokens, whole.Usage.CompletionTokens)

	ask.Model = "other"
	_, err = client.Chat.Completions.New(ctx, ask)
	equal(refused(err).StatusCode, 404)
	equal(refused(err).Code, "model_not_found")

	stranger := openai.NewClient(option.WithBaseURL(url), option.WithAPIKey("not "+key), option.WithMaxRetries(0))
	_, err = stranger.Models.List(ctx)
	equal(refused(err).StatusCode, 401)
	fmt.Println("ok")
}

// refused returns what the server answered instead.
func refused(err error) *openai.Error {
	var failed *openai.Error
	if !errors.As(err, &failed) {
		log.Output(2, fmt.Sprint("not refused: ", err))
		os.Exit(1)
	}
	return failed
}

func require(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func equal[T comparable](got, want T) {
	if got != want {
		log.Output(2, fmt.Sprintf("got %v, want %v", got, want))
		os.Exit(1)
	}
}

// Command reference answers questions about CDI with the Go reference library, so that a test can
// compare divvy's answers with them. It reads one JSON request a line on stdin and writes one JSON
// reply a line on stdout. Bytes travel as a string whose code points are the bytes.
//
// A panic of the library, or a request that takes longer than two seconds, is an answer too.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// limit is how long the library may take for one request before the reply is that it hangs.
const limit = 2 * time.Second

// request is one question; which fields count depends on Op.
type request struct {
	Op          string            `json:"op"`
	Data        bytes             `json:"data"`
	Dirs        []string          `json:"dirs"`
	Devices     []string          `json:"devices"`
	Config      json.RawMessage   `json:"config"`
	Annotations map[string]string `json:"annotations"`
	Name        string            `json:"name"`
	Plugin      string            `json:"plugin"`
}

// reply is the answer. Panic and Hang are what the library did instead of answering.
type reply struct {
	Error      string              `json:"error,omitempty"`
	Panic      string              `json:"panic,omitempty"`
	Hang       bool                `json:"hang,omitempty"`
	Spec       json.RawMessage     `json:"spec,omitempty"`
	Minimum    string              `json:"minimum,omitempty"`
	Unresolved []string            `json:"unresolved,omitempty"`
	Config     json.RawMessage     `json:"config,omitempty"`
	Devices    []string            `json:"devices,omitempty"`
	Specs      []string            `json:"specs,omitempty"`
	Errors     map[string][]string `json:"errors,omitempty"`
	Text       string              `json:"text,omitempty"`
	Data       bytes               `json:"data,omitempty"`
	Mode       string              `json:"mode,omitempty"`
	Path       string              `json:"path,omitempty"`
}

// bytes is a string of bytes, each a code point below 256, so that any document fits in JSON.
type bytes []byte

func (b bytes) MarshalJSON() ([]byte, error) {
	points := make([]rune, len(b))
	for i, c := range b {
		points[i] = rune(c)
	}
	return json.Marshal(string(points))
}

func (b *bytes) UnmarshalJSON(text []byte) error {
	var points string
	if err := json.Unmarshal(text, &points); err != nil {
		return err
	}
	for _, c := range points {
		*b = append(*b, byte(c))
	}
	return nil
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			if err := encoder.Encode(answerInTime(line)); err != nil {
				fmt.Fprintln(os.Stderr, "reference:", err)
				os.Exit(1)
			}
			if err := out.Flush(); err != nil {
				os.Exit(1)
			}
		}
		if err != nil {
			return
		}
	}
}

// answerInTime leaves a hanging request behind in its goroutine: only the process's end stops it.
func answerInTime(line []byte) reply {
	done := make(chan reply, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				done <- reply{Panic: fmt.Sprint(cause)}
			}
		}()
		var request request
		if err := json.Unmarshal(line, &request); err != nil {
			done <- reply{Error: "bad request: " + err.Error()}
			return
		}
		done <- answer(&request)
	}()
	select {
	case reply := <-done:
		return reply
	case <-time.After(limit):
		return reply{Hang: true}
	}
}

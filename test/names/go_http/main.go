// SPDX-License-Identifier: BSD-3-Clause

// A stock server and a stock client:
//
//	go_http serve ADDRESS [CERTIFICATE KEY]
//	go_http get tcp|mptcp URL ADDRESS
//
// The server answers with the number of bytes in the path. The client takes the name that
// the URL has for the host at ADDRESS; tcp is net/http's own choice.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

func serve(address string, files []string) error {
	http.HandleFunc("/", func(w http.ResponseWriter, request *http.Request) {
		size, err := strconv.Atoi(strings.TrimPrefix(request.URL.Path, "/"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Write(make([]byte, size))
	})
	if len(files) == 2 {
		return http.ListenAndServeTLS(address, files[0], files[1], nil)
	}
	return http.ListenAndServe(address, nil)
}

func get(protocol, url, address string) error {
	dialer := &net.Dialer{}
	if protocol == "mptcp" {
		dialer.SetMultipathTCP(true)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	size, err := io.Copy(io.Discard, response.Body)
	fmt.Println(size)
	return err
}

func main() {
	var err error
	switch {
	case len(os.Args) > 2 && os.Args[1] == "serve":
		err = serve(os.Args[2], os.Args[3:])
	case len(os.Args) == 5 && os.Args[1] == "get":
		err = get(os.Args[2], os.Args[3], os.Args[4])
	default:
		err = fmt.Errorf("wrong arguments")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

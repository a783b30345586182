// One login of a client: `logins CLIENT BOOTSTRAP SECURITY`, where SECURITY is JSON.
//
// It sends one record and reads it back. It prints `ok`, or the kind of refusal that the application sees.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	topic    = "logins"
	patience = 20 * time.Second

	served  = "ok"
	refused = "refused"
	other   = "no answer"
)

// security says how to log in; fields that do not apply are empty.
type security struct {
	Protocol, CA, Certificate, Mechanism, User, Password string
	Token                                                bool
}

// bearer is an unsecured token in the form of RFC 7515, for the principal `bearer`.
func bearer() string {
	encode := base64.RawURLEncoding.EncodeToString
	now := time.Now().Unix()
	claims := fmt.Sprintf(`{"sub":"bearer","iat":%d,"exp":%d}`, now, now+600)
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(claims)) + "."
}

// settings verify the broker by the authority of the file, and show the client's certificate if it has one.
func (s security) settings() (*tls.Config, error) {
	authority, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("the trust store holds no certificate")
	}
	config := &tls.Config{RootCAs: roots}
	if s.Certificate != "" {
		own, err := tls.LoadX509KeyPair(s.Certificate, s.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func main() {
	clients := map[string]func(string, security, *tls.Config) (string, error){"franz-go": franz, "sarama": sarama}
	var given security
	if err := json.Unmarshal([]byte(os.Args[3]), &given); err != nil {
		panic(err)
	}
	config, err := given.settings()
	if err != nil {
		panic(err)
	}
	outcome, err := clients[os.Args[1]](os.Args[2], given, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Println(outcome)
}

package main

import ("encoding/json"; "fmt"; "net/http"; "os"; "strings")

func call(name, fields string) (said struct{ Transaction, Error string; Messages []struct{ Text, Key, Receipt string } }) {
	request, _ := http.NewRequest("POST", os.Getenv("TXSAGA_API")+"/messages"+name, strings.NewReader(fields))
	request.Header = http.Header{"Authorization": {"Bearer " + os.Getenv("TXSAGA_KEY")}, "Content-Type": {"application/json"}}
	answer, err := http.DefaultClient.Do(request)
	if err != nil || json.NewDecoder(answer.Body).Decode(&said) != nil || said.Error != "" { panic(fmt.Sprint(err, said.Error)) }
	return said
}

func main() {
	half := call("/prepare", `{"messages": [{"topic": "orders", "key": "7", "json": {"order": 7}}]}`)
	call("/commit", fmt.Sprintf(`{"transaction": %q}`, half.Transaction))
	for _, message := range call("/receive", `{"topic": "orders", "group": "packing", "wait": 20}`).Messages {
		fmt.Println(message.Text, message.Key)
		call("/ack", fmt.Sprintf(`{"group": "packing", "receipt": %q}`, message.Receipt))
	}
}

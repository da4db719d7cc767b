const call = async (name, fields) => {
  const answer = await fetch(`${process.env.TXSAGA_API}/messages${name}`, {
    method: "POST",
    headers: { authorization: `Bearer ${process.env.TXSAGA_KEY}`, "content-type": "application/json" },
    body: JSON.stringify(fields),
  });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error);
  return said;
};

const { transaction } = await call("/prepare", { messages: [{ topic: "orders", key: "7", json: { order: 7 } }] });
await call("/commit", { transaction });
const { messages } = await call("/receive", { topic: "orders", group: "packing", wait: 20 });
for (const message of messages) {
  console.log(JSON.parse(message.text).order, message.key);
  await call("/ack", { group: "packing", receipt: message.receipt });
}

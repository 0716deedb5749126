import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.*;
import java.util.stream.Stream;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.CatalogueApi;
import org.openapitools.client.api.InferenceApi;
import org.openapitools.client.model.*;
import org.openapitools.client.model.Error;

/** Sends requests through the Java client of the OpenAPI Generator, and prints what the client read, as JSON. */
public class Read {
    static String baseUrl;
    static String key;
    static ApiClient client;
    static ObjectMapper json;

    public static void main(String[] args) throws Exception {
        baseUrl = args[0];
        key = args[1];
        client = new ApiClient();
        client.updateBaseUri(baseUrl);
        client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + key));
        json = client.getObjectMapper();
        InferenceApi api = new InferenceApi(client);

        Message whole = api.createMessage(message("echo", false));
        Message called = api.createMessage(message("reasoning-tools", false));
        ChatCompletion completion = api.createChatCompletion(chat(false));
        Map<String, Object> output = new LinkedHashMap<>();
        output.put("text", whole.getContent().get(0).getTextBlock().getText());
        output.put("tokens", whole.getUsage().getOutputTokens());
        output.put("provider", whole.getGatewayMetadata().getProvider());
        output.put("blocks", called.getContent().stream().map(block -> name(block.getActualInstance())).toList());
        Map<String, List<String>> events = new LinkedHashMap<>();
        StringBuilder text = new StringBuilder();
        for (String model : List.of("echo", "reasoning-tools")) {
            StringBuilder said = model.equals("echo") ? text : new StringBuilder();
            events.put(model, readEvents(message(model, true), said));
        }
        output.put("events", events);
        output.put("streamed", text.toString());

        StringBuilder streamed = new StringBuilder();
        List<Integer> usages = new ArrayList<>();
        for (String data : events("/chat/completions", chat(true))) {
            ChatCompletionChunk chunk = json.readValue(data, ChatCompletionChunk.class);
            for (ChatCompletionChunkChoicesInner choice : chunk.getChoices()) {
                Object content = ((Map<?, ?>) choice.getDelta()).get("content");
                if (content != null) streamed.append(content);
            }
            if (chunk.getUsage() != null) usages.add(chunk.getUsage().getTotalTokens());
        }
        output.put("chat", Map.of(
            "text", completion.getChoices().get(0).getMessage().getContent(),
            "total", completion.getUsage().getTotalTokens(),
            "streamed", streamed.toString(),
            "usages", usages));
        ErrorObject chat = json.readValue(
            refusal(() -> api.createChatCompletion(chat(false).model("alias/none"))), Error.class).getError();
        MessageErrorObject message = json.readValue(
            refusal(() -> api.createMessage(message("echo", false).model("alias/none"))), MessageError.class).getError();
        ErrorObject model = json.readValue(
            refusal(() -> new CatalogueApi(client).readModel("none/none/none", null)), ModelsError.class).getError();
        output.put("refused", List.of(
            Arrays.asList(chat.getCode(), chat.getParam(), chat.getType()),
            Arrays.asList(message.getCode(), message.getParam(), message.getType()),
            Arrays.asList(model.getCode(), model.getParam(), model.getType())));
        System.out.println(json.writeValueAsString(output));
    }

    interface Ask {
        void ask() throws ApiException;
    }

    /** Returns the body of the error response. */
    static String refusal(Ask ask) {
        try {
            ask.ask();
        } catch (ApiException exception) {
            return exception.getResponseBody();
        }
        throw new IllegalStateException("nothing was refused");
    }

    static MessagesRequest message(String model, boolean stream) {
        MessagesRequestMessagesInner hello = new MessagesRequestMessagesInner()
            .role(MessagesRequestMessagesInner.RoleEnum.USER).content("hello there");
        MessagesRequest request = new MessagesRequest()
            .model("simanthropic/claude/" + model).maxTokens(64).addMessagesItem(hello).stream(stream);
        if (model.equals("echo")) return request;
        return request.addToolsItem(
            new MessagesRequestToolsInner().name("weather").inputSchema(Map.of("type", "object")));
    }

    static ChatCompletionRequest chat(boolean stream) {
        ChatMessage hello = new ChatMessage().role(ChatMessage.RoleEnum.USER).content("hello there");
        return new ChatCompletionRequest().model("sim/test/echo").addMessagesItem(hello).stream(stream);
    }

    /** Returns the type of each event, or of its block or delta. */
    static List<String> readEvents(MessagesRequest request, StringBuilder text) throws Exception {
        List<String> names = new ArrayList<>();
        for (String data : events("/messages", request)) {
            Object event = json.readValue(data, MessageEvent.class).getActualInstance();
            if (event instanceof ContentBlockStart start) event = start.getContentBlock().getActualInstance();
            if (event instanceof ContentBlockDelta delta) event = delta.getDelta().getActualInstance();
            if (event instanceof TextDelta delta) text.append(delta.getText());
            names.add(name(event));
        }
        return names;
    }

    /** Reads the lines of a stream with Java's own HTTP client, because the generated client cannot stream. */
    static List<String> events(String path, Object body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(baseUrl + path))
            .header("Authorization", "Bearer " + key).header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(json.writeValueAsString(body))).build();
        try (Stream<String> lines = client.getHttpClient().send(request, BodyHandlers.ofLines()).body()) {
            return lines.filter(line -> line.startsWith("data: ") && !line.equals("data: [DONE]"))
                .map(line -> line.substring("data: ".length())).toList();
        }
    }

    static String name(Object instance) {
        return instance.getClass().getSimpleName();
    }
}

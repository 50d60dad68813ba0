import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.RerankApi;
import org.openapitools.client.model.Candidate;
import org.openapitools.client.model.RerankMatrix;
import org.openapitools.client.model.RerankRequest;
import org.openapitools.client.model.RerankResponse;
import org.openapitools.client.model.RerankRows;
import org.openapitools.client.model.Value;

public class Rank {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(args[0]);
        client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + "k".repeat(20)));
        RerankApi api = new RerankApi(client);
        JsonNode golden = MAPPER.readTree(Path.of(args[1]).toFile());
        List<String> names = new ArrayList<>();
        golden.get("names").forEach(name -> names.add(name.asText()));
        List<Map<String, Object>> answers = new ArrayList<>();
        for (JsonNode list : golden.get("lists")) {
            List<List<Value>> rows = new ArrayList<>();
            List<Candidate> named = new ArrayList<>();
            for (JsonNode row : list) {
                List<Value> values = new ArrayList<>();
                row.forEach(value -> values.add(valueOf(value)));
                Map<String, Value> byName = new LinkedHashMap<>();
                for (int column = 0; column < names.size(); column++) {
                    byName.put(names.get(column), values.get(column));
                }
                rows.add(values);
                named.add(new Candidate().features(byName));
            }
            RerankMatrix matrix = new RerankMatrix().features(rows).featureNames(names).rawScores(true);
            answers.add(rank(api, new RerankRequest(matrix)));
            answers.add(rank(api, new RerankRequest(new RerankRows().candidates(named).rawScores(true))));
        }
        System.out.println(MAPPER.writeValueAsString(answers));
    }

    private static Value valueOf(JsonNode value) {
        if (value.isNull()) {
            return null;
        }
        return value.isNumber() ? new Value(value.asDouble()) : new Value(value.asText());
    }

    private static Map<String, Object> rank(RerankApi api, RerankRequest request) throws Exception {
        RerankResponse answer = api.rerank(
            request, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null);
        return Map.of("scores", answer.getScores(), "ranks", answer.getRanks());
    }
}
